import * as zlib from "node:zlib";
import type { RowClient } from "../compression/client.ts";
import type { RowServer } from "../compression/server.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { formatNumber } from "../suite/format.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Run, Workload } from "../suite/workload.ts";

const module = (name: string) => new URL(`../compression/${name}.js`, import.meta.url);

/** About so long is the body in msgpack. */
const bodyBytes = 4 << 20;
const ways = ["none", "deflate", "zstd"] as const;
const hasZstd = typeof (zlib as { zstdCompress?: unknown }).zstdCompress === "function";

export const compression: Workload = {
  name: "compression",
  title: "Long bodies, compressed and not",
  about:
    "An array of rows of 4 MiB there and back over tcp, one call after the other, without compression and by each " +
    "format. The loopback has no limit that compression could help with: the figures are what it costs. Beside the " +
    "time of a call: the bytes of an input on the wire, the processor time of both processes, and the longest time " +
    "that the client's thread was busy at a stretch.",
  families: ["compression"],
  selection: "whole",
  seconds: 6,

  async run(run: Run): Promise<readonly Figure[]> {
    const server = await Child.start<RowServer>("compression, server", module("server"), [
      "tcp://127.0.0.1:0",
    ]);
    let client: Child<RowClient> | undefined;
    try {
      client = await Child.start<RowClient>("compression, client", module("client"), [
        await server.ask("url"),
      ]);
      return await measure(run, server, client);
    } finally {
      await client?.end();
      await server.end();
    }
  },
};

async function measure(run: Run, server: Child<RowServer>, client: Child<RowClient>): Promise<Figure[]> {
  if (!hasZstd) run.lack("Cinnabar tcp, zstd", "this Node has no zstd");
  const subjects = ways
    .filter((way) => way !== "zstd" || hasZstd)
    .map((way) => ({
      way,
      format: way === "none" ? (false as const) : way,
      bytes: 0,
      p50Ms: [] as number[],
      cpuMs: [] as number[],
      busyMs: [] as number[],
    }));
  for (const subject of subjects) {
    const { before, after } = await client.ask("check", subject.format, bodyBytes);
    subject.bytes = after;
    if (subject.way !== "none") run.tell(`${subject.way}: ${before} bytes become ${after}`);
    // What the JIT has to learn is no part of a round.
    await client.ask("echo", subject.format, bodyBytes, run.roundMs / 2);
  }
  const plain = subjects.find(({ way }) => way === "none");
  const whole = subjects.find(({ way }) => way === "deflate");
  if (plain !== undefined && whole !== undefined) {
    const { before } = await client.ask("check", whole.format, bodyBytes);
    plain.bytes = before;
  }
  for (let round = 1; round <= run.rounds; round++) {
    for (const { format, p50Ms, cpuMs, busyMs } of subjects) {
      const startUs = (await server.ask("cpuUs")) + (await client.ask("cpuUs"));
      const echoed = await client.ask("echo", format, bodyBytes, run.roundMs);
      const usedUs = (await server.ask("cpuUs")) + (await client.ask("cpuUs")) - startUs;
      p50Ms.push(echoed.p50Ms);
      cpuMs.push(usedUs / 1000 / echoed.calls);
      busyMs.push(echoed.longestBusyMs);
    }
    const told = subjects.map(({ way, p50Ms }) => `${way} ${formatNumber(p50Ms.at(-1) ?? Number.NaN)}`);
    run.tell(`4 MiB, round ${round} of ${run.rounds}, ms: ${told.join(", ")}`);
  }
  const load = loadAverage();
  return subjects.flatMap(({ way, bytes, p50Ms, cpuMs, busyMs }) => {
    const common = { subject: `Cinnabar tcp, ${way}`, better: "less", load } as const;
    const name = (what: string) => `tcp.compression.${way}.${what}`;
    return [
      { ...common, name: name("p50_ms"), chart: "A body of 4 MiB there and back", unit: "ms", rounds: p50Ms },
      { ...common, name: name("cpu_ms"), chart: "Processor time of such a call", unit: "ms", rounds: cpuMs },
      {
        ...common,
        name: name("busy_ms"),
        chart: "The client's thread at a stretch",
        unit: "ms",
        rounds: busyMs,
      },
      { ...common, name: name("bytes"), chart: "An input on the wire", unit: "bytes", rounds: [bytes] },
    ] satisfies Figure[];
  });
}
