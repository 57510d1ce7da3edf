import { Child, type Party } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Run, Workload } from "../suite/workload.ts";
import type { LanesClient } from "./lanes/client.ts";

const counts = [1, 2];
const inFlight = 64;
const computeUs = 200;
const warmUpMs = 200;

/** One server with so many lanes, and its client. */
interface Contender {
  readonly lanes: number;
  readonly server: Child<Party>;
  readonly client: Child<LanesClient>;
  readonly rounds: number[];
}

export const lanes: Workload = {
  name: "lanes",
  title: "Worker lanes",
  about: `A server that computes ${computeUs} µs a call, in one lane and in two, under the load of one client in a process of its own with ${inFlight} calls in flight over shm. The client needs a core, too: on two cores, two lanes cannot double what one does.`,
  families: ["lanes"],
  selection: "whole",
  seconds: 5,
  run,
};

async function run({ rounds, roundMs, tell }: Run): Promise<readonly Figure[]> {
  const contenders: Contender[] = [];
  try {
    for (const lanes of counts) contenders.push(await start(lanes));
    for (const { client } of contenders) await client.ask("measure", inFlight, computeUs, warmUpMs);
    for (let round = 1; round <= rounds; round++) {
      tell(`round ${round} of ${rounds}`);
      for (const { client, rounds } of contenders)
        rounds.push(await client.ask("measure", inFlight, computeUs, roundMs));
    }
    const load = loadAverage();
    return contenders.map(({ lanes, rounds }) => ({
      name: `lanes.${lanes}.ops`,
      subject: `${lanes} ${lanes === 1 ? "lane" : "lanes"}`,
      chart: `Calls of ${computeUs} µs each, one client`,
      unit: "calls/s",
      better: "more",
      rounds,
      load,
    }));
  } finally {
    for (const { client, server } of contenders) {
      await client.end();
      await server.end();
    }
  }
}

async function start(lanes: number): Promise<Contender> {
  const url = `shm://bench.${process.pid}.${lanes}`;
  const server = await Child.start<Party>(`${lanes} lanes`, new URL("./lanes/server.js", import.meta.url), [
    url,
    lanes,
  ]);
  const client = await Child.start<LanesClient>(
    `a client of ${lanes} lanes`,
    new URL("./lanes/client.js", import.meta.url),
    [url],
  );
  return { lanes, server, client, rounds: [] };
}
