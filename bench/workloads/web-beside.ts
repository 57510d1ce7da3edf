import { contenders } from "../contenders/index.ts";
import type { ServerParty } from "../contenders/server-party.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import { warmUp } from "../suite/warm-up.ts";
import type { Run, Workload } from "../suite/workload.ts";
import type { Host } from "../web-beside/host.ts";
import type { Visited, Visitor } from "../web-beside/visitor.ts";

const module = (path: string) => new URL(`../${path}.js`, import.meta.url);
/** Who calls in the process of the web server, and how many calls are in flight. */
const besides = ["shm", "tcp", "net-unix"].flatMap((key) => [1, 64].map((inFlight) => ({ key, inFlight })));
const charts = { p50Us: "median", p99Us: "99th percentile" } as const;

/** What calls without a pause cost a web server in the same process. */
export const webBeside: Workload = {
  name: "web-beside",
  title: "A web server beside calls",
  about:
    "How long requests to a server of node:http take, one at a time over one connection, while its process calls a service without a pause, and while it does nothing else, by turns. " +
    "Callers that never wait take most of a thread, over any transport, so calls over a Unix socket stand beside ours.",
  families: ["web_beside"],
  selection: "whole",
  seconds: 21,

  async run(run: Run): Promise<readonly Figure[]> {
    const ends: { end(): Promise<void> }[] = [];
    const started = async <P extends Child<never>>(child: Promise<P>): Promise<P> => {
      ends.unshift(await child);
      return child;
    };
    try {
      const visitor = await started(Child.start<Visitor>("web, visitor", module("web-beside/visitor")));
      const hosts = new Map<string, Child<Host>>();
      for (const { key } of contenders().filter((one) => besides.some(({ key }) => key === one.key))) {
        const id = `web-${process.pid}`;
        const server = await started(
          Child.start<ServerParty>(`web, ${key} server`, module("contenders/server-party"), [key, id]),
        );
        const args = [key, id, await server.ask("address")];
        hosts.set(key, await started(Child.start<Host>(`web, ${key} host`, module("web-beside/host"), args)));
      }
      const visit = async (key: string, inFlight: number, durationMs: number): Promise<Visited> => {
        const host = hosts.get(key) as Child<Host>;
        await host.ask("call", inFlight);
        const visited = await visitor.ask("visit", await host.ask("webPort"), durationMs);
        await host.ask("stop");
        return visited;
      };
      const subjects = [
        {
          name: "nothing",
          title: "beside nothing",
          visit: (durationMs: number) => visit("shm", 0, durationMs),
        },
        ...besides.map(({ key, inFlight }) => ({
          name: `${key}.${inFlight}`,
          title: `beside calls over ${key}, ${inFlight} in flight`,
          visit: (durationMs: number) => visit(key, inFlight, durationMs),
        })),
      ];
      for (const { visit } of subjects) await warmUp(run.roundMs, async (ms) => 1 / (await visit(ms)).p50Us);
      const rounds = subjects.map((): Visited[] => []);
      for (let round = 0; round < run.rounds; round++) {
        for (const [index, subject] of subjects.entries())
          rounds[index]?.push(await subject.visit(run.roundMs));
        const told = subjects.map(
          ({ name }, index) => `${name} ${rounds[index]?.at(-1)?.p99Us.toFixed(0)} µs`,
        );
        run.tell(`Web server, round ${round + 1} of ${run.rounds}, 99 % within: ${told.join(", ")}`);
      }
      const load = loadAverage();
      return subjects.flatMap(({ name, title }, index) =>
        (["p50Us", "p99Us"] as const).map(
          (measured): Figure => ({
            name: `web_beside.${name}.${measured.replace("Us", "_us")}`,
            subject: `node:http, ${title}`,
            chart: `A web server beside calls: latency, ${charts[measured]}`,
            unit: "µs",
            better: "less",
            rounds: (rounds[index] ?? []).map((one) => one[measured]),
            load,
          }),
        ),
      );
    } finally {
      for (const one of ends) await one.end();
    }
  },
};
