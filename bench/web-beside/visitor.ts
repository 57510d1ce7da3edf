import { Agent, get } from "node:http";
import type { Party } from "../suite/child.ts";
import { percentile } from "../suite/statistics.ts";

/** Latencies of requests to a web server. */
export interface Visited {
  readonly p50Us: number;
  readonly p99Us: number;
}

/** A client of a web server, in a process of its own. */
export interface Visitor extends Party {
  /** Asks for so long, one request after the other over one connection. */
  visit(port: number, forMs: number): Promise<Visited>;
}

export async function open(): Promise<Visitor> {
  const agent = new Agent({ keepAlive: true });
  const fetchOne = (port: number) =>
    new Promise<void>((resolve, reject) => {
      get({ host: "127.0.0.1", port, agent }, (response) => {
        response.on("end", resolve).resume();
      }).on("error", reject);
    });
  return {
    async visit(port, forMs) {
      const latenciesUs: number[] = [];
      for (const limit = performance.now() + forMs; performance.now() < limit; ) {
        const begun = performance.now();
        await fetchOne(port);
        latenciesUs.push((performance.now() - begun) * 1000);
      }
      const sorted = Float64Array.from(latenciesUs).sort();
      return { p50Us: percentile(sorted, 0.5), p99Us: percentile(sorted, 0.99) };
    },
    async close() {
      agent.destroy();
    },
  };
}
