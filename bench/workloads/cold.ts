import { contenders } from "../contenders/index.ts";
import { withContenders } from "../contenders/running.ts";
import { Child, type Party } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import type { Run, Workload } from "../suite/workload.ts";
import { bind, byTurns, usableCores } from "./company.ts";

/** Ours beside plain sockets of the same kind: only these processes exist at a time. */
const groups = [
  ["shm", "net-unix"],
  ["tcp", "net", "net-tcp"],
];

/** What a call costs whose code and data are no longer in the caches. */
export const cold: Workload = {
  name: "cold",
  title: "Cold calls",
  about:
    "The small object there and back, one call in flight, client and server on one core: alone, where each takes the caches from the other, and beside a process that sweeps the core's caches. Processor time and latency count; Cinnabar over shm stands beside node:net over a Unix socket, over tcp and net beside node:net over TCP.",
  families: ["cold"],
  selection: "named",
  seconds: 52,
  run: measureCold,
};

export async function measureCold(run: Run): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const keys of groups) {
    const entries = contenders().filter(({ key }) => keys.includes(key));
    const measured = await withContenders(run, entries, async (running) => {
      const [core = 0] = usableCores();
      let sweeper: Child<Party> | undefined;
      try {
        for (const { pids } of running) for (const pid of pids) await bind(pid, core);
        const alone = await byTurns(run, running, { key: "cold.alone", title: "One core", inFlight: 1 });
        sweeper = await Child.start<Party>("sweeper", new URL("../company/sweeper.js", import.meta.url));
        await bind(sweeper.pid, core);
        const swept = await byTurns(run, running, {
          key: "cold.swept",
          title: "One core, its caches swept",
          inFlight: 1,
        });
        return [...alone, ...swept];
      } catch (error) {
        run.lack(keys.join(", "), (error as Error).message);
        return [];
      } finally {
        await sweeper?.end();
      }
    });
    figures.push(...measured);
  }
  return figures;
}
