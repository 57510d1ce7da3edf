import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { lackOfProgram } from "../suite/installed.ts";
import { messageBytes } from "./ponger.ts";

const program = "fi_pingpong";
const limitMs = 20_000;

/** Where the tool runs: as the port does that it is held against. */
export interface FiPingpongPlace {
  readonly provider: string;
  /** libfabric's domain that the listening end is on, such as `siw0`; without it the first that the provider has. */
  readonly device?: string | undefined;
  /** The address at which the listening end is found. */
  readonly host: string;
}

/** Why libfabric's own ping-pong cannot be run; undefined if it can. */
export function lackOfFiPingpong(): string | undefined {
  return lackOfProgram(program, "it belongs to Debian's package libfabric-bin");
}

/**
 * Microseconds for one round trip in C, mean over `count`: two processes of libfabric's tool, on reliable datagram
 * endpoints as ours.
 */
export async function fiPingpongUs(
  { provider, device, host }: FiPingpongPlace,
  count: number,
): Promise<number> {
  const port = String(await freePort());
  const common = ["-p", provider, "-e", "rdm", "-I", String(count), "-S", String(messageBytes)];
  const env = { ...(await settingsOf(provider)), ...process.env };
  const server = spawn(program, [...common, ...(device === undefined ? [] : ["-d", device]), "-B", port], {
    env,
    timeout: limitMs,
    killSignal: "SIGKILL",
    stdio: "ignore",
  });
  const ended = once(server, "close");
  try {
    // It does not say when it listens; a client that comes too early ends at once with nothing. The client's device is
    // the one that reaches the server's address: another than the server's, where two of one machine are at the ends of
    // a cable.
    for (const limit = performance.now() + limitMs; performance.now() < limit; ) {
      const output = await outputOf(program, [...common, "-P", port, host], env);
      const halfUs = readUsPerTransfer(output);
      if (halfUs !== undefined) return 2 * halfUs;
      if (server.exitCode !== null || server.signalCode !== null) break;
    }
    throw new Error(`${program} -p ${provider} measured nothing`);
  } finally {
    server.kill("SIGKILL");
    await ended;
  }
}

/**
 * What the addon sets for itself, so that both run on the same queues (native/fabric/quirks.cc); without the first the
 * tool finds no room on Soft-RoCE.
 */
async function settingsOf(provider: string): Promise<NodeJS.ProcessEnv> {
  if (provider !== "verbs;ofi_rxm") return {};
  const settings = { FI_UNIVERSE_SIZE: "127", FI_OFI_RXM_USE_SRX: "1", FI_OFI_RXM_MSG_RX_SIZE: "896" };
  return isYielding ? { ...settings, LD_PRELOAD: await yielding() } : settings;
}

/**
 * Whether the tool is made to give the processor away, over verbs: on a machine with one its figure would tell of the
 * kernel's clock and little else.
 */
export const isYielding = availableParallelism() === 1;

/** What is preloaded for that, compiled at its first use. */
function yielding(): Promise<string> {
  compiled ??= (async () => {
    const library = join(tmpdir(), `cinnabar-yielding-${process.pid}.so`);
    await promisify(execFile)("c++", ["-xc", "-O2", "-shared", "-fPIC", "-o", library, yieldingSource]);
    return library;
  })();
  return compiled;
}

let compiled: Promise<string> | undefined;
/** The build has no C; the source lies beside that of this file. */
const yieldingSource = fileURLToPath(new URL("../../../bench/floor/yielding.c", import.meta.url));

/**
 * The tool divides what it took by twice the number of messages that it sent: a transfer is one way, half a round trip.
 */
export function readUsPerTransfer(output: string): number | undefined {
  const lines = output.split("\n").map((line) => line.trim().split(/\s+/));
  const titles = lines.findIndex((words) => words.includes("usec/xfer"));
  const figures = lines[titles + 1];
  // "total time" would be two words, but is one column each.
  const value = Number(figures?.[lines[titles]?.indexOf("usec/xfer") ?? -1]);
  return titles >= 0 && Number.isFinite(value) && value > 0 ? value : undefined;
}

async function outputOf(command: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<string> {
  const child = spawn(command, args, {
    env,
    timeout: limitMs,
    killSignal: "SIGKILL",
    stdio: ["ignore", "pipe", "ignore"],
  });
  let output = "";
  child.stdout.on("data", (chunk) => {
    output += chunk;
  });
  await once(child, "close");
  return output;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}
