import { spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { type Summary, summarize } from "../../suite/statistics.ts";
import type { Settings } from "../settings.ts";
import { formatSummary, formatTable } from "../table.ts";

const program = "fi_rma_bw";
const bytes = 1 << 20;
const transfers = 200;
const limitMs = 5_000;
/** It says nothing before its partner is there. */
const startMs = 300;

export interface FiRmaBw {
  readonly provider: string;
  readonly op: "read" | "write";
  /** Undefined when it did not end in time. */
  readonly gigabytesPerSecond: Summary | undefined;
}

/**
 * What libfabric's own benchmark measures with nothing above libfabric, where it is installed. It belongs to fabtests, which Debian has in no package;
 * undefined when it is not on PATH.
 */
export async function measureFiRmaBw(settings: Settings): Promise<FiRmaBw[] | undefined> {
  if (!isOnPath()) return undefined;
  const lines: FiRmaBw[] = [];
  for (const provider of ["shm", "tcp", "net"]) {
    for (const op of ["write", "read"] as const) {
      const rounds: number[] = [];
      for (let round = 0; round < settings.rounds; round++) {
        const rate = await runOnce(provider, op);
        if (rate === undefined) break; // it would only hang again
        rounds.push(rate);
      }
      lines.push({ provider, op, gigabytesPerSecond: rounds.length === 0 ? undefined : summarize(rounds) });
    }
  }
  return lines;
}

export function describeFiRmaBw(lines: readonly FiRmaBw[] | undefined): string {
  if (lines === undefined) return `${program} (fabtests, in no Debian package): not installed`;
  return formatTable(
    [`${program}, 1 MiB, 64 in flight`, "", "GB/s"],
    lines.map(({ provider, op, gigabytesPerSecond }) => [
      provider,
      op,
      gigabytesPerSecond === undefined ? "does not run here" : formatSummary(gigabytesPerSecond),
    ]),
  );
}

async function runOnce(provider: string, op: string): Promise<number | undefined> {
  const args = ["-p", provider, "-o", op, "-S", String(bytes), "-I", String(transfers)];
  const timeout = { timeout: limitMs, killSignal: "SIGKILL" } as const;
  const server = spawn(program, args, { ...timeout, stdio: "ignore" });
  const serverEnded = once(server, "close");
  await new Promise((resolve) => setTimeout(resolve, startMs));
  const client = spawn(program, [...args, "127.0.0.1"], { ...timeout, stdio: ["ignore", "pipe", "ignore"] });
  let output = "";
  client.stdout.on("data", (chunk) => {
    output += chunk;
  });
  await once(client, "close");
  server.kill("SIGKILL");
  await serverEnded;
  // "bytes iters total time MB/sec …", and a line of figures below.
  const [titles, figures] = output
    .trim()
    .split("\n")
    .map((line) => line.trim().split(/\s+/));
  const megabytesPerSecond = Number(figures?.[titles?.indexOf("MB/sec") ?? -1]);
  return Number.isFinite(megabytesPerSecond) ? megabytesPerSecond / 1000 : undefined;
}

function isOnPath(): boolean {
  return (process.env.PATH ?? "").split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
