import { spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants } from "node:fs";
import { createServer } from "node:net";
import { delimiter, join } from "node:path";
import { messageBytes } from "./ponger.ts";

const program = "fi_pingpong";
const limitMs = 20_000;

/** Why libfabric's own ping-pong cannot be run; undefined if it can. */
export function lackOfFiPingpong(): string | undefined {
  const isThere = (process.env.PATH ?? "").split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
  return isThere ? undefined : `${program} is not installed; it belongs to Debian's package libfabric-bin`;
}

/** Microseconds for one round trip in C, mean over `count`: two processes of libfabric's tool, on reliable datagram endpoints as ours. */
export async function fiPingpongUs(provider: string, count: number): Promise<number> {
  const port = String(await freePort());
  const common = ["-p", provider, "-e", "rdm", "-I", String(count), "-S", String(messageBytes)];
  const server = spawn(program, [...common, "-B", port], {
    timeout: limitMs,
    killSignal: "SIGKILL",
    stdio: "ignore",
  });
  const ended = once(server, "close");
  try {
    // It does not say when it listens; a client that comes too early ends at once with nothing.
    for (const limit = performance.now() + limitMs; performance.now() < limit; ) {
      const output = await outputOf(program, [...common, "-P", port, "127.0.0.1"]);
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

/** The tool divides what it took by twice the number of messages that it sent: a transfer is one way, half a round trip. */
export function readUsPerTransfer(output: string): number | undefined {
  const lines = output.split("\n").map((line) => line.trim().split(/\s+/));
  const titles = lines.findIndex((words) => words.includes("usec/xfer"));
  const figures = lines[titles + 1];
  // "total time" would be two words, but is one column each.
  const value = Number(figures?.[lines[titles]?.indexOf("usec/xfer") ?? -1]);
  return titles >= 0 && Number.isFinite(value) && value > 0 ? value : undefined;
}

async function outputOf(command: string, args: readonly string[]): Promise<string> {
  const child = spawn(command, args, {
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
