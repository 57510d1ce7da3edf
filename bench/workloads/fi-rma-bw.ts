import { spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Workload } from "../suite/workload.ts";

const program = "fi_rma_bw";
const bytes = 1 << 20;
const transfers = 200;
const limitMs = 5_000;
/** It says nothing before its partner is there. */
const startMs = 300;

export const fiRmaBw: Workload = {
  name: "fi-rma-bw",
  title: "libfabric's own transfers",
  about:
    "What libfabric's own benchmark, fi_rma_bw of fabtests, reaches with nothing above libfabric: 1 MiB, 64 in flight.",
  families: ["fi-rma-bw"],
  selection: "named",
  seconds: 40,
  async run(run) {
    if (!isOnPath()) {
      run.lack(program, "not on PATH; it belongs to fabtests, which Debian has in no package");
      return [];
    }
    const figures: Figure[] = [];
    for (const provider of ["shm", "tcp", "net"]) {
      for (const op of ["write", "read"]) {
        const rounds: number[] = [];
        for (let round = 0; round < run.rounds; round++) {
          const rate = await runOnce(provider, op);
          if (rate === undefined) break; // it would only hang again
          rounds.push(rate);
        }
        if (rounds.length < run.rounds) {
          run.lack(`${program} ${provider} ${op}`, `it does not end within ${limitMs / 1000} s`);
          continue;
        }
        run.tell(`${provider} ${op} done`);
        figures.push({
          name: `fi-rma-bw.${provider}.${op}_gbps`,
          subject: `${program} ${provider} ${op}`,
          chart: "libfabric's own benchmark, 1 MiB, 64 in flight",
          unit: "GB/s",
          better: "more",
          rounds,
          load: loadAverage(),
        });
      }
    }
    return figures;
  },
};

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
