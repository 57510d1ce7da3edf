// Hedging: a second request beside a slow one. The first answer counts, and the other request is cancelled.
// Run it with `node build/examples/recipes/hedge.js [url]`.
import { once } from "node:events";
import { setTimeout } from "node:timers/promises";
import { Engine, implement, service, unary } from "cinnabar";
import { z } from "zod";

const Prices = service("prices.v1", {
  of: unary({ input: z.object({ item: z.string() }), output: z.int(), idempotent: true }),
});

/** Calls once, and a second time if there is no answer after `afterMs`. For idempotent methods only: both may run. */
async function hedged<T>(afterMs: number, call: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const over = new AbortController();
  const second = async () => {
    await setTimeout(afterMs, undefined, { signal: over.signal });
    return call(over.signal);
  };
  try {
    return await Promise.any([call(over.signal), second()]);
  } catch (error) {
    throw (error as AggregateError).errors[0]; // both have failed
  } finally {
    over.abort(); // cancels the slower call, or the wait before it
  }
}

const url = process.argv[2] ?? `shm://prices-${process.pid}`;
let requests = 0;
let onCancelled = (): void => {};
const cancelled = new Promise<void>((resolve) => {
  onCancelled = resolve;
});
const prices = implement(Prices, {
  async of({ item }, call) {
    // The first request is stuck until its caller cancels it.
    if (++requests === 1) {
      await once(call.signal, "abort");
      onCancelled();
    }
    return item.length;
  },
});
await using server = await Engine.open({ listen: url, serve: [prices] });
await using engine = await Engine.open();
const client = (await engine.connect(server.urls[0] ?? url)).client(Prices, { timeoutMs: 30_000 });

const price = await hedged(20, (signal) => client.of({ item: "gasket" }, { signal }));
console.log(`${price}, after ${requests} requests`);
await cancelled;
console.log("the slow request was cancelled");
const quick = await hedged(30_000, (signal) => client.of({ item: "nut" }, { signal }));
console.log(`${quick}, after ${requests} requests in all`);
