import type { HttpClient } from "../http/client.ts";
import { type HttpServer, hasFastify } from "../http/server.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import { warmUp } from "../suite/warm-up.ts";
import type { Run, Workload } from "../suite/workload.ts";

const module = (path: string) => new URL(`../http/${path}.js`, import.meta.url);
const inFlight = 64;

const titles = {
  cinnabar: "cinnabar-http",
  fastify: "Fastify, calling by hand",
  "connect-node": "connect-node, with JSON",
  node: "node:http alone",
} as const;
type Kind = keyof typeof titles;

/** The edge beside other servers of HTTP, with one client for all of them. */
export const http: Workload = {
  name: "http",
  title: "HTTP",
  about:
    "Small unary calls with JSON over 64 connections, and uploads of 64 MiB, to servers in processes of their own: cinnabar-http, Fastify whose route calls the same service, connect-node, and node:http that counts the bytes.",
  families: ["http"],
  selection: "whole",
  seconds: 25,

  async run(run: Run): Promise<readonly Figure[]> {
    const ends: { end(): Promise<void> }[] = [];
    try {
      const client = await Child.start<HttpClient>("HTTP, client", module("client"), []);
      ends.unshift(client);
      const kinds: Kind[] = ["cinnabar", "connect-node", "node"];
      if (await hasFastify()) kinds.push("fastify");
      else run.lack("Fastify", "it is not installed: npm install --no-save fastify@5.12.8");
      const ports = new Map<Kind, number>();
      for (const kind of kinds) {
        const server = await Child.start<HttpServer>(`HTTP, ${kind}`, module("server"), [kind]);
        ends.unshift(server);
        ports.set(kind, await server.ask("port"));
      }
      const subjects = kinds.flatMap((kind) => {
        const port = ports.get(kind) as number;
        const calls = {
          ...{ kind, measure: "unary.ops", unit: "calls/s" as const, chart: "HTTP: small calls with JSON" },
          work: (ms: number) => client.ask("calls", port, inFlight, ms),
        };
        const upload = {
          ...{ kind, measure: "upload.gbps", unit: "GB/s" as const, chart: "HTTP: uploads" },
          work: (ms: number) => client.ask("upload", port, ms),
        };
        return [
          ...(kind === "node" ? [] : [calls]),
          ...(kind === "cinnabar" || kind === "node" ? [upload] : []),
        ];
      });
      for (const { work } of subjects) await warmUp(run.roundMs, work);
      const rounds = subjects.map((): number[] => []);
      for (let round = 0; round < run.rounds; round++) {
        for (const [index, { work }] of subjects.entries()) rounds[index]?.push(await work(run.roundMs));
        const told = subjects.map(
          ({ kind, measure }, index) => `${kind} ${measure} ${rounds[index]?.at(-1)?.toFixed(2)}`,
        );
        run.tell(`HTTP, round ${round + 1} of ${run.rounds}: ${told.join(", ")}`);
      }
      const load = loadAverage();
      return subjects.map(
        ({ kind, measure, unit, chart }, index): Figure => ({
          ...{ name: `${kind}.http.${measure}`, subject: titles[kind], chart, unit, load },
          better: "more",
          rounds: rounds[index] ?? [],
        }),
      );
    } finally {
      for (const one of ends) await one.end();
    }
  },
};
