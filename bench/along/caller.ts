import { Engine, type Middleware } from "cinnabar";
import { smallObject } from "../contenders/payloads.ts";
import { Echo } from "../echo/contract.ts";

/** What goes along with the calls: nothing, two entries of metadata, or two functions of middleware at the client. */
export const variants = ["plain", "metadata", "middleware"] as const;
export type Variant = (typeof variants)[number];

export interface Caller {
  /** Microseconds for a call, with so many in flight for so long. */
  run(variant: Variant, inFlight: number, forMs: number): Promise<number>;
  close(): Promise<void>;
}

const entries = {
  traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
  "x-tenant": "acme",
};
const pass: Middleware = (_, next) => next();

export async function open(url: string): Promise<Caller> {
  const engine = await Engine.open();
  const peer = await engine.connect(url);
  const client = peer.client(Echo, { timeoutMs: 10_000 });
  const through = peer.client(Echo, { timeoutMs: 10_000, middleware: [pass, pass] });
  const calls: Record<Variant, () => Promise<unknown>> = {
    plain: () => client.echo(smallObject),
    metadata: () => client.echo(smallObject, { metadata: entries }),
    middleware: () => through.echo(smallObject),
  };
  return {
    async run(variant, inFlight, forMs) {
      const call = calls[variant];
      let count = 0;
      const begun = performance.now();
      const until = begun + forMs;
      const caller = async () => {
        while (performance.now() < until) {
          await call();
          count++;
        }
      };
      await Promise.all(Array.from({ length: inFlight }, caller));
      return ((performance.now() - begun) * 1000) / count;
    },
    close: () => engine.close(),
  };
}
