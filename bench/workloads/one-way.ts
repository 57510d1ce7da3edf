import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import { warmUp } from "../suite/warm-up.ts";
import type { Run, Workload } from "../suite/workload.ts";
import { perSecond, startPair } from "./streams.ts";

const inFlight = 64;

export const oneWay: Workload = {
  name: "oneway",
  title: "One-way calls",
  about:
    "64 callers of one client process each make a one-way call when their last has left, and beside that unary calls " +
    "that echo. A one-way call counts when the server has executed it. Over shm.",
  families: ["oneway"],
  selection: "quick",
  seconds: 7,

  async run(run: Run): Promise<readonly Figure[]> {
    const pair = await startPair("shm");
    try {
      const { consumer } = pair;
      const ops: number[] = [];
      const calls: number[] = [];
      for (const method of ["note", "echo"] as const)
        await warmUp(run.roundMs, async (ms) => perSecond(await consumer.ask("call", method, inFlight, ms)));
      for (let round = 1; round <= run.rounds; round++) {
        ops.push(perSecond(await consumer.ask("call", "note", inFlight, run.roundMs)));
        calls.push(perSecond(await consumer.ask("call", "echo", inFlight, run.roundMs)));
        run.tell(
          `One-way, round ${round} of ${run.rounds}: ${Math.round(ops.at(-1) ?? 0)}/s, unary ${Math.round(calls.at(-1) ?? 0)}/s`,
        );
      }
      const figure = (name: string, subject: string, rounds: readonly number[]): Figure => ({
        name: `shm.oneway.${name}`,
        subject,
        chart: "One-way and unary calls, 64 in flight",
        unit: "calls/s",
        better: "more",
        rounds,
        load: loadAverage(),
      });
      return [figure("ops", "Cinnabar shm, one-way", ops), figure("calls", "Cinnabar shm, unary", calls)];
    } finally {
      await pair.end();
    }
  },
};
