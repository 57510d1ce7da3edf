import { existsSync, readFileSync } from "node:fs";
import { basename, dirname, extname, join } from "node:path";
import type { ParseArgsConfig } from "node:util";
import {
  Engine,
  type EngineOptions,
  type Peer,
  type RpcCode,
  RpcError,
  type SecurityOptions,
} from "cinnabar/standard";
import { UsageError } from "./command.ts";
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
  name: { type: "string" },
  timeout: { type: "string" },
} as const satisfies NonNullable<ParseArgsConfig["options"]>;

/** What `--help` says of them. */
export const connectionHelp = `  --cert FILE      The certificate to show to a server with security, as
                   \`cinnabar keys issue\` makes it.
  --key FILE       Its private key. Default: the certificate's file with .key.
  --ca FILE        The authority to trust. Default: ca.pem beside the certificate.
  --crl FILE       The authority's revocation list. Default: none.
  --psk FILE       A shared key instead, as \`cinnabar keys psk\` makes it.
  --identity NAME  The name of the shared key. Default: its file without .psk.
  --name NAME      The name that the server's certificate must have. Default: the
                   host of the URL.
  --timeout TIME   How long to wait for the server's welcome and for an answer,
                   such as 500ms, 2s or 1m. Default: 5s.`;

/** The values of these options, as `parseArgs` gives them. */
export type ConnectionValues = { readonly [name in keyof typeof connectionOptions]?: string | undefined };

const defaultTimeoutMs = 5000;

/** Statuses of commands that a signal or a closed output ended, as shells count them: 128 and the signal's number. */
const interruptions = { SIGINT: 130, SIGPIPE: 141, SIGTERM: 143 } as const;

/** gRPC's codes by their numbers, from 1 on. A failed call ends a command with 64 and the number. */
const codesFrom1: readonly RpcCode[] = [
  "cancelled",
  "unknown",
  "invalid_argument",
  "deadline_exceeded",
  "not_found",
  "already_exists",
  "permission_denied",
  "resource_exhausted",
  "failed_precondition",
  "aborted",
  "out_of_range",
  "unimplemented",
  "internal",
  "unavailable",
  "data_loss",
  "unauthenticated",
];

/** The exit status of a command whose call failed: 65 `cancelled` to 80 `unauthenticated`. */
export function statusOf(code: RpcCode): number {
  return 65 + codesFrom1.indexOf(code);
}

/** Why a command cannot do its work: one line with the remedy, and the exit status. */
export class CommandError extends Error {
  override readonly name = "CommandError";
  readonly status: number;

  constructor(message: string, status = 1, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.status = status;
  }
}

/** What a command works with while it has an engine. */
export interface Connection {
  readonly engine: Engine;
  /** Aborted when the command must end: by Ctrl-C, SIGTERM, or because the reader of its output is gone. */
  readonly signal: AbortSignal;
  /** The time limit that the user gave, or the default: for an answer. */
  readonly timeoutMs: number;
  /** Whether the user gave a time limit. Streams have none otherwise. */
  readonly hasTimeout: boolean;
  /** Connects. @throws UsageError for a malformed URL, CommandError with the remedy. */
  dial(url: string): Promise<Peer>;
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
  const timeoutMs =
    values.timeout === undefined ? defaultTimeoutMs : milliseconds("--timeout", values.timeout);
  return untilEnded(command, terminal, async ({ signal, aborted }) => {
    const engines: Engine[] = [];
    const open = async (options: EngineOptions): Promise<Connection> => {
      const engine = await openEngine(values, options);
      engines.push(engine);
      return {
        engine,
        signal,
        timeoutMs,
        hasTimeout: values.timeout !== undefined,
        // Connecting takes no signal: Ctrl-C does not wait for it.
        dial: (url) => Promise.race([dial(engine, url, timeoutMs, values.name), aborted]),
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

/** What an error comes to for the person at the terminal. What no command expects passes through, with its stack. */
export function commandError(error: unknown, where = ""): CommandError {
  if (error instanceof CommandError) return error;
  if (!(error instanceof RpcError)) throw error;
  const remedy = remedies[error.code];
  const said = where === "" ? error.message : `${where}: ${error.message}`;
  return new CommandError(remedy === undefined ? said : `${said}; ${remedy}`, statusOf(error.code), error);
}

/** What to do about a failure, where the code alone tells. */
const remedies: { readonly [code in RpcCode]?: string } = {
  unauthenticated: "give --cert, --key and --ca, or --psk, as the server asks",
  permission_denied: "let the server's security.allow permit it for this identity",
};

async function dial(engine: Engine, url: string, timeoutMs: number, name: string | undefined): Promise<Peer> {
  const startMs = performance.now();
  try {
    return await engine.connect(url, { timeoutMs, ...(name === undefined ? {} : { name }) });
  } catch (error) {
    if (error instanceof TypeError || error instanceof RangeError) throw new UsageError(error.message);
    const { message, status } = commandError(error);
    // A server that computes takes no connections, and one that is not there may be as silent.
    // Timers may be up to a millisecond early.
    const isSilent = performance.now() - startMs >= timeoutMs - 1;
    throw new CommandError(isSilent ? `${message} Its event loop may be blocked.` : message, status, error);
  }
}

async function openEngine(values: ConnectionValues, serving: EngineOptions): Promise<Engine> {
  const security = securityOf(values);
  try {
    return await Engine.open(security === undefined ? serving : { ...serving, security });
  } catch (error) {
    // The options are right: what is wrong is in the files.
    if (error instanceof TypeError || error instanceof RangeError) throw new CommandError(error.message);
    throw commandError(error);
  }
}

/** @throws UsageError for options that do not fit together, CommandError for files that cannot be read. */
function securityOf({ cert, key, ca, crl, psk, identity }: ConnectionValues): SecurityOptions | undefined {
  if (psk !== undefined) {
    if (cert !== undefined || key !== undefined || ca !== undefined || crl !== undefined)
      throw new UsageError("--psk and --cert, --key, --ca, --crl exclude each other");
    return { psk: { identity: identity ?? basename(psk, ".psk"), key: read("--psk", psk) } };
  }
  if (identity !== undefined)
    throw new UsageError("--identity is the name of a shared key: give --psk as well");
  const files = { cert, key, ca, crl };
  const own = certificateOf("--", files);
  return own && { tls: { ...own, ...authorityOf("--", files) } };
}

/** The files that options name. */
export interface CertificateFiles {
  readonly cert: string | undefined;
  readonly key: string | undefined;
  readonly ca: string | undefined;
  readonly crl: string | undefined;
}

/**
 * The certificate and its key. Undefined where none is named. `prefix` is what the names of the options begin with.
 *
 * @throws UsageError for other files without a certificate, CommandError for files that cannot be read.
 */
export function certificateOf(prefix: string, { cert, key, ca, crl }: CertificateFiles) {
  if (cert !== undefined) {
    const stem = cert.slice(0, cert.length - extname(cert).length);
    return { cert: read(`${prefix}cert`, cert), key: read(`${prefix}key`, key ?? `${stem}.key`) };
  }
  if (key !== undefined || ca !== undefined || crl !== undefined)
    throw new UsageError(
      `${prefix}key, ${prefix}ca and ${prefix}crl belong to a certificate: give ${prefix}cert as well`,
    );
  return undefined;
}

/**
 * The authority to trust, by default that beside the certificate, and its list.
 *
 * @throws CommandError for files that cannot be read.
 */
export function authorityOf(prefix: string, { cert = "", ca, crl }: CertificateFiles) {
  return {
    ca: read(`${prefix}ca`, ca ?? join(dirname(cert), "ca.pem")),
    ...(crl === undefined ? {} : { crl: read(`${prefix}crl`, crl) }),
  };
}

function read(option: string, file: string): Uint8Array {
  if (!existsSync(file)) throw new CommandError(`${option}: there is no file ${file}`);
  try {
    return readFileSync(file);
  } catch (error) {
    throw new CommandError(`${option}: ${(error as Error).message}`);
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
