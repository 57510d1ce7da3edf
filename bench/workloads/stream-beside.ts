import type { Latencies } from "../streams/consumer.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import { warmUp } from "../suite/warm-up.ts";
import type { Run, Workload } from "../suite/workload.ts";
import { startPair } from "./streams.ts";

const inFlight = 8;
const stalledStreams = 20;
const besides = ["nothing", "stalled"] as const;
const subjects = { nothing: "alone", stalled: `beside ${stalledStreams} stalled streams` } as const;
const charts = { p50Us: "median", p99Us: "99th percentile" } as const;

export const streamBeside: Workload = {
  name: "stream-beside",
  title: "Small calls beside stalled streams",
  about:
    `How long small calls take, ${inFlight} in flight over shm, while ${stalledStreams} streams of the same session have ` +
    "filled their windows and their consumers read nothing, and without them, by turns.",
  families: ["stream_beside"],
  selection: "whole",
  seconds: 8,

  async run(run: Run): Promise<readonly Figure[]> {
    const pair = await startPair("shm");
    try {
      const { consumer } = pair;
      const rounds: Record<(typeof besides)[number], Latencies[]> = { nothing: [], stalled: [] };
      const measure = async (beside: (typeof besides)[number], durationMs: number) => {
        await consumer.ask("stall", beside === "stalled" ? stalledStreams : 0);
        return consumer.ask("latencies", inFlight, durationMs);
      };
      for (const beside of besides)
        await warmUp(run.roundMs, async (ms) => 1 / (await measure(beside, ms)).p50Us);
      for (let round = 0; round < run.rounds; round++) {
        // What a round finds is also what the one before it left behind: each goes first as often.
        for (const beside of round % 2 === 0 ? besides : besides.toReversed())
          rounds[beside].push(await measure(beside, run.roundMs));
        run.tell(
          `Small calls, round ${round + 1} of ${run.rounds}: 99 % within ${besides.map((beside) => `${rounds[beside].at(-1)?.p99Us.toFixed(1)} µs ${subjects[beside]}`).join(", ")}`,
        );
      }
      const load = loadAverage();
      return besides.flatMap((beside) =>
        (["p50Us", "p99Us"] as const).map(
          (measured): Figure => ({
            name: `shm.stream_beside.${beside}.${measured.replace("Us", "_us")}`,
            subject: `Cinnabar shm, ${subjects[beside]}`,
            chart: `Small calls beside stalled streams: latency, ${charts[measured]}`,
            unit: "µs",
            better: "less",
            rounds: rounds[beside].map((one) => one[measured]),
            load,
          }),
        ),
      );
    } finally {
      await pair.end();
    }
  },
};
