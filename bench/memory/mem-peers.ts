import { Engine, implement } from "cinnabar";
import { smallObject } from "../contenders/payloads.ts";
import { Echo } from "../echo/contract.ts";
import { type Usage, usage } from "../echo/usage.ts";
import { limits } from "./contract.ts";

export interface MemPeers extends Usage {
  /** Opens so many more sessions: `sessions` of the same client engine, `engines` of one each. */
  add(count: number, kind: "sessions" | "engines"): Promise<void>;
  /**
   * Processor time of one call, both ends together, in microseconds: mean over so many, one in flight, beside those
   * that are idle.
   */
  callUs(count: number): Promise<number>;
}

/** So long that no pings of 10,000 sessions fall into what is measured. */
const heartbeatMs = 60_000;

/** A server and its simulated peers in one process, over mem. */
export async function open(): Promise<MemPeers> {
  const server = await Engine.open({
    listen: "mem://hub",
    serve: [implement(Echo, { echo: (input) => input })],
    limits,
    heartbeatMs,
  });
  const engine = await Engine.open({ limits, heartbeatMs });
  const client = (await engine.connect("mem://hub")).client(Echo);
  // Peers that nobody holds would still be held by their engines; engines would not.
  const held: unknown[] = [];
  const calls = async (count: number) => {
    for (let i = 0; i < count; i++) await client.echo(smallObject);
  };
  await calls(20_000);

  return {
    ...usage,

    async add(count, kind) {
      for (let i = 0; i < count; i++) {
        const from = kind === "sessions" ? engine : await Engine.open();
        held.push(from, await from.connect("mem://hub"));
      }
    },

    async callUs(count) {
      const before = await usage.cpuUs();
      await calls(count);
      return ((await usage.cpuUs()) - before) / count;
    },

    // The process goes, and thousands of engines with it.
    async close() {
      await server.close();
    },
  };
}
