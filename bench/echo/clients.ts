import { type Client, Engine } from "cinnabar";
import { smallObject } from "../contenders/payloads.ts";
import { Echo } from "./contract.ts";
import { type Usage, usage } from "./usage.ts";

/** What so many callers did in a stretch of time. */
export interface Stretch {
  readonly calls: number;
  readonly elapsedMs: number;
}

export interface EchoClients extends Usage {
  /**
   * Adds so many engines with a session each; how long each took from the engine's opening to the welcome, in
   * milliseconds.
   */
  connect(engines: number): Promise<number[]>;
  /**
   * How long connecting takes on an engine that has its port already, in milliseconds; the sessions are closed again.
   */
  reconnect(times: number): Promise<number[]>;
  /** Every engine has so many calls in flight for so long. */
  run(inFlight: number, forMs: number): Promise<Stretch>;
}

/**
 * Clients of one server, as many engines in this process as are asked for, in full dress: checked by zod, with a
 * deadline.
 */
export async function open(url: string): Promise<EchoClients> {
  const engines: Engine[] = [];
  const clients: Client<typeof Echo>[] = [];
  return {
    ...usage,

    async connect(count) {
      const tookMs: number[] = [];
      for (let i = 0; i < count; i++) {
        const begun = performance.now();
        const engine = await Engine.open();
        engines.push(engine);
        clients.push((await engine.connect(url)).client(Echo, { timeoutMs: 10_000 }));
        tookMs.push(performance.now() - begun);
      }
      return tookMs;
    },

    async reconnect(times) {
      const tookMs: number[] = [];
      for (let i = 0; i < times; i++) {
        const begun = performance.now();
        const peer = await engines[0]?.connect(url);
        tookMs.push(performance.now() - begun);
        peer?.close();
      }
      return tookMs;
    },

    async run(inFlight, forMs) {
      let calls = 0;
      const begun = performance.now();
      const until = begun + forMs;
      const caller = async (client: Client<typeof Echo>) => {
        while (performance.now() < until) {
          await client.echo(smallObject);
          calls++;
        }
      };
      await Promise.all(clients.flatMap((client) => Array.from({ length: inFlight }, () => caller(client))));
      return { calls, elapsedMs: performance.now() - begun };
    },

    async close() {
      await Promise.all(engines.map((engine) => engine.close()));
    },
  };
}
