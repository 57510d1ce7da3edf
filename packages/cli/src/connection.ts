import type { ParseArgsConfig } from "node:util";
import { Engine, type EngineOptions, type Peer, type SecurityOptions } from "cinnabar/standard";
import { UsageError } from "./command.ts";
import { CommandError, commandError, giveCredentials, statusOf } from "./command-error.ts";
import { securityOf, variable } from "./credentials.ts";
import { milliseconds } from "./quantities.ts";
import type { Terminal } from "./terminal.ts";

/** The options that every command with a URL has. Spread them into those of the command. */
export const connectionOptions = {
  cert: { type: "string" },
  key: { type: "string" },
  ca: { type: "string" },
  crl: { type: "string" },
  psk: { type: "string" },
  identity: { type: "string" },
  name: { type: "string", multiple: true },
  timeout: { type: "string" },
} as const satisfies NonNullable<ParseArgsConfig["options"]>;

/** What `--help` says of them. */
export const connectionHelp = `
Connection. Each option can be a variable instead, such as CINNABAR_CERT=FILE:
  --cert FILE      The certificate to show to a server with security, as
                   \`cinnabar keys issue\` makes it.
  --key FILE       Its private key. Default: the certificate's file with .key.
  --ca FILE        The authority to trust. Default: ca.pem beside the certificate.
  --crl FILE       The authority's revocation list. Default: none.
  --psk FILE       A shared key instead, as \`cinnabar keys psk\` makes it.
  --identity NAME  The name of the shared key. Default: its file without .psk.
  --name NAME      The name that the server's certificate must have. Default: the
                   host of the URL. Where servers have different names: one --name
                   for each URL, in their order. CINNABAR_NAME has commas between
                   names.
  --timeout TIME   How long to wait for the server's welcome and for an answer,
                   such as 500ms, 2s or 1m. Default: 5s.`;

/** The values of these options, as `parseArgs` gives them. */
export type ConnectionValues = {
  readonly [option in Exclude<keyof typeof connectionOptions, "name">]?: string | undefined;
} & { readonly name?: readonly string[] | undefined };

const defaultTimeoutMs = 5000;

/** Statuses of commands that a signal or a closed output ended, as shells count them: 128 and the signal's number. */
const interruptions = { SIGINT: 130, SIGPIPE: 141, SIGTERM: 143 } as const;

/** A server to connect to. */
export interface Server {
  readonly url: string;
  /** The name that its certificate must have. Undefined: the host of the URL. */
  readonly name: string | undefined;
}

/** What a command works with while it has an engine. */
export interface Connection {
  readonly engine: Engine;
  /** Aborted when the command must end: by Ctrl-C, SIGTERM, or because the reader of its output is gone. */
  readonly signal: AbortSignal;
  /** The time limit that the user gave, or the default: for an answer. */
  readonly timeoutMs: number;
  /** Whether the user gave a time limit. Streams have no limit otherwise. */
  readonly hasTimeout: boolean;
  /** The names that certificates of servers must have: one for all, or one for each server. */
  readonly names: readonly string[];
  /** Connects, by a URL to the only server of a command. @throws UsageError for a malformed URL, CommandError. */
  dial(server: Server | string): Promise<Peer>;
  /** The same with an engine of its own, which only connects, and which is closed with the first. @throws CommandError. */
  another(): Promise<Connection>;
}

/** What ends a command from outside. */
export interface Ending {
  /** Aborted by Ctrl-C, SIGTERM, or because the reader of the output is gone. */
  readonly signal: AbortSignal;
  /** Rejects when the signal is aborted. */
  readonly aborted: Promise<never>;
}

/**
 * Runs `work` until it is done, and returns the exit status. A failure is printed as one line, with the remedy. Ctrl-C,
 * SIGTERM and a closed output abort the signal, and the command ends with the status of that. A second Ctrl-C ends the
 * process at once.
 *
 * @throws UsageError for wrong options.
 */
export async function untilEnded(
  command: string,
  terminal: Terminal,
  work: (ending: Ending) => Promise<number>,
): Promise<number> {
  const ending = endOfProcess();
  try {
    const status = await work(ending);
    return ending.status ?? status;
  } catch (error) {
    if (error instanceof UsageError) throw error;
    if (ending.status !== undefined) return ending.status;
    const { message, status } = commandError(error);
    terminal.complain(`cinnabar ${command}: ${message}`);
    return status;
  } finally {
    ending.release();
  }
}

/**
 * Runs `work` with an engine, as `untilEnded` does. The engine only connects, unless `serving` says otherwise. It is
 * closed in any case.
 *
 * @throws UsageError for wrong options, before anything is opened.
 */
export async function withEngine(
  command: string,
  values: ConnectionValues,
  terminal: Terminal,
  work: (connection: Connection) => Promise<number>,
  serving: EngineOptions = {},
): Promise<number> {
  const timeoutMs = timeoutOf(values);
  return untilEnded(command, terminal, async ({ signal, aborted }) => {
    const engines: Engine[] = [];
    const security = securityOf(values);
    const names = namesOf(values, security);
    const open = async (serving: EngineOptions): Promise<Connection> => {
      const options = security === undefined ? serving : { ...serving, security };
      const engine = await openEngine(options);
      engines.push(engine);
      return {
        engine,
        signal,
        timeoutMs,
        hasTimeout: values.timeout !== undefined,
        names,
        // Connecting takes no signal: Ctrl-C does not wait for it.
        async dial(server) {
          const named = typeof server === "string" ? serversOf([server], names)[0] : server;
          return Promise.race([dial(engine, named as Server, timeoutMs, options.security), aborted]);
        },
        another: () => open({}),
      };
    };
    try {
      return await work(await open(serving));
    } finally {
      await Promise.all(engines.map((engine) => engine.close()));
    }
  });
}

/** @throws UsageError for a number of names that is neither one nor that of the servers. */
export function serversOf(urls: readonly string[], names: readonly string[]): Server[] {
  if (names.length > 1 && names.length !== urls.length)
    throw new UsageError(
      `there are ${names.length} names for ${urls.length} servers: give --name once, or once for each`,
    );
  return urls.map((url, at) => ({ url, name: names[names.length === 1 ? 0 : at] }));
}

/** A variable is for many commands: names without certificates mean nothing, and are no fault. */
function namesOf({ name }: ConnectionValues, security: SecurityOptions | undefined): readonly string[] {
  if (name !== undefined) return name;
  return (security?.tls === undefined ? undefined : variable("name")?.value.split(",")) ?? [];
}

function timeoutOf({ timeout }: ConnectionValues): number {
  if (timeout !== undefined) return milliseconds("--timeout", timeout);
  const setting = variable("timeout");
  return setting === undefined ? defaultTimeoutMs : milliseconds(setting.source, setting.value);
}

async function dial(
  engine: Engine,
  { url, name }: Server,
  timeoutMs: number,
  security: EngineOptions["security"],
): Promise<Peer> {
  const startMs = performance.now();
  try {
    return await engine.connect(url, { timeoutMs, ...(name === undefined ? {} : { name }) });
  } catch (error) {
    if (error instanceof TypeError || error instanceof RangeError) throw new UsageError(error.message);
    const { message, status } = commandError(error);
    const remedy =
      status === statusOf("unauthenticated") && security === undefined ? `; ${giveCredentials}` : "";
    // A server that computes takes no connections, and one that is not there may be as silent.
    // Timers may be up to a millisecond early.
    const isSilent = performance.now() - startMs >= timeoutMs - 1;
    const why = isSilent ? " Its event loop may be blocked." : remedy;
    throw new CommandError(`${message}${why}`, status, error);
  }
}

async function openEngine(options: EngineOptions): Promise<Engine> {
  try {
    return await Engine.open(options);
  } catch (error) {
    // The options are right: what is wrong is in the files.
    if (error instanceof TypeError || error instanceof RangeError) throw new CommandError(error.message);
    throw commandError(error);
  }
}

/** Notices what ends a command from outside, until `release`. */
function endOfProcess() {
  const controller = new AbortController();
  let status: number | undefined;
  const end = (with_: number) => {
    if (status !== undefined) process.exit(with_);
    status = with_;
    controller.abort();
  };
  const onInterrupt = () => end(interruptions.SIGINT);
  const onTerminate = () => end(interruptions.SIGTERM);
  // `cinnabar.ts` takes the error itself. Each further write fails as well.
  const onClosedOutput = () => {
    if (status === undefined) end(interruptions.SIGPIPE);
  };
  process.on("SIGINT", onInterrupt).on("SIGTERM", onTerminate);
  process.stdout.on("error", onClosedOutput);
  const aborted = new Promise<never>((_, reject) => {
    controller.signal.addEventListener("abort", () => reject(controller.signal.reason), { once: true });
  });
  aborted.catch(() => {});
  // An engine that only connects does not keep the process alive, but the command does until it has ended.
  const alive = setInterval(() => {}, 2 ** 30);
  return {
    signal: controller.signal,
    /** Rejects when the signal is aborted. */
    aborted,
    get status() {
      return status;
    },
    release() {
      clearInterval(alive);
      process.off("SIGINT", onInterrupt).off("SIGTERM", onTerminate);
      process.stdout.off("error", onClosedOutput);
    },
  };
}
