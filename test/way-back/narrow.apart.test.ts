import { implement, type SessionPeer, serverStream, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { exact } from "../matrix/exact-limits.ts";
import { openEngine } from "../matrix/pair.ts";
import { type Provider, transports } from "../matrix/providers.ts";
import { failure, until } from "../matrix/wait.ts";

const Both = service("both.v1", {
  echo: unary({ input: z.string(), output: z.string() }),
  /** Asks the caller `width` times at once, each of which asks back, until `depth` is 0. Gives the number of calls. */
  ask: unary({ input: z.object({ depth: z.int(), width: z.int() }), output: z.int() }),
  /** The same, item by item. */
  count: serverStream({ input: z.object({ depth: z.int() }), output: z.int() }),
});

/** The most handlers of `both.v1` that ran at once, by the side. */
const both = () =>
  implement(Both, {
    echo: (text) => text,
    async ask({ depth, width }, { caller }) {
      if (depth === 0) return 1;
      const below = { depth: depth - 1, width };
      const asks = Array.from({ length: width }, () => caller.client(Both).ask(below));
      return 1 + (await Promise.all(asks)).reduce((a, b) => a + b, 0);
    },
    async *count({ depth }, { caller }) {
      yield depth;
      if (depth > 0) for await (const item of caller.client(Both).count({ depth: depth - 1 })) yield item;
    },
  });

/** Two sides, each of which has one call at a time in flight to the other. */
async function narrow(provider: Provider) {
  const limits = exact({ maxRequests: 1, maxRequestsInAll: 1 });
  const { heartbeatMs, connectTimeoutMs: timeoutMs } = provider;
  const server = await openEngine({ listen: provider.freshUrl(), serve: [both()], limits, heartbeatMs });
  const client = await openEngine({ limits, heartbeatMs });
  const window = { maxInFlight: 1 };
  const peer = await client.connect(server.urls[0] as string, { serve: [both()], window, timeoutMs });
  await peer.client(Both).echo("open");
  const back = server.peers()[0] as SessionPeer;
  return { server, client, there: peer.client(Both), back: back.client(Both) };
}

describe.each(transports)("two sides with windows of one over $name", (provider) => {
  it("call each other at once", async () => {
    const { there, back, server, client } = await narrow(provider);
    const calls = Array.from({ length: 200 }, (_, i) => (i % 2 === 0 ? there : back).echo(`${i}`));
    expect(await Promise.all(calls)).toEqual(calls.map((_, i) => `${i}`));
    // Nothing took more than its place.
    expect(client.peers()[0]?.stats().window.credits).toBe(1);
    expect(server.peers()[0]?.stats().window.credits).toBe(1);
  });

  it("call each other at once from handlers, which call back in turn", async () => {
    const { there, back } = await narrow(provider);
    const input = { depth: 4, width: 2 };
    const asks = Array.from({ length: 6 }, (_, i) => (i % 2 === 0 ? there : back).ask(input));
    // 1 + 2 + 4 + 8 + 16 calls each.
    expect(await Promise.all(asks)).toEqual(asks.map(() => 31));
  });

  it("stream to each other at once from handlers, which stream in turn", async () => {
    const { there, back } = await narrow(provider);
    const read = async (side: typeof there) => {
      const items: number[] = [];
      for await (const item of side.count({ depth: 5 })) items.push(item);
      return items;
    };
    expect(await Promise.all([read(there), read(back), read(there), read(back)])).toEqual(
      Array.from({ length: 4 }, () => [5, 4, 3, 2, 1, 0]),
    );
  });

  it("give back what a handler took that has been given up", async () => {
    const { there, back, server, client } = await narrow(provider);
    const controller = new AbortController();
    const input = { depth: 200, width: 1 };
    const deep = failure(there.ask(input, { signal: controller.signal }));
    await until(() => server.calls().length > 20, "a deep chain of calls");
    controller.abort();
    expect((await deep).code).toBe("cancelled");
    await until(() => server.calls().length + client.calls().length === 0, "the end of the chain");
    expect(await there.ask({ depth: 3, width: 2 })).toBe(15);
    expect(await back.ask({ depth: 3, width: 2 })).toBe(15);
  });
});
