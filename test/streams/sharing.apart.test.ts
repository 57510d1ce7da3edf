import {
  bulk,
  bytes,
  type CallContext,
  type Client,
  clientStream,
  implement,
  RpcError,
  serverStream,
  service,
  unary,
} from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { leastMemoryBytes } from "../../src/base/flow/engine-limits.ts";
import { exact } from "../matrix/exact-limits.ts";
import { openEngine, pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { type Deferred, deferred, failure, until } from "../matrix/wait.ts";

const Feed = service("feed.v1", {
  numbers: serverStream({ input: z.number(), output: z.number(), idempotent: true }),
  pieces: serverStream({ output: z.string() }),
  fill: serverStream({ input: z.object({ into: bulk("write") }), output: z.number() }),
  echo: unary({ input: z.number(), output: z.number() }),
});

type Target = Parameters<CallContext["put"]>[1];

/** Counts what its handlers have made. */
class Feeder {
  made = 0;
  started = 0;
  refusals = 0;
  readonly ends: Deferred<void> = deferred();
  readonly implementation = implement(Feed, {
    numbers: async function* (this: Feeder, to: number) {
      this.started++;
      if (this.refusals-- > 0) throw new RpcError({ code: "unavailable", message: "not yet" });
      for (let n = 0; n < to; n++) {
        this.made++;
        yield n;
      }
    }.bind(this),
    pieces: async function* (this: Feeder) {
      for (;;) {
        this.made++;
        yield "x".repeat(1000);
      }
    }.bind(this),
    fill: async function* (this: Feeder, { into }: { into: Target }, call: CallContext) {
      for (let offset = 0; offset < into.byteLength; offset += 8) {
        await call.put(new Uint8Array(8).fill(offset + 1), into, { offset });
        yield offset;
      }
      await this.ends.promise;
    }.bind(this),
    echo: (input) => input,
  });
}

async function read(client: Client<typeof Feed>, to: number, options = {}): Promise<number> {
  let next = 0;
  for await (const n of client.numbers(to, options)) {
    expect(n).toBe(next);
    next++;
  }
  return next;
}

describe.each(transports)("streams of one session over $name", (provider) => {
  it("hold no more than their windows while nobody reads, and hold up neither calls nor each other", async () => {
    const feeder = new Feeder();
    const { api, client, server } = await pair(provider, [feeder.implementation]);
    const feed = api(Feed);
    const stalled = Array.from({ length: 20 }, () => feed.pieces({ window: { bytes: 20_000 } }));
    // Nineteen items of 1,003 bytes and 16 take 20,000 bytes to 639; the twentieth below zero.
    await until(() => client.stats().counters.itemsReceived === 400, "full windows");
    for (let i = 0; i < 100; i++) expect(await feed.echo(i)).toBe(i);
    expect(await read(feed, 5000)).toBe(5000);
    expect(server.stats()).toMatchObject({ queuedBytes: 0 });
    expect(feeder.made).toBe(400 + 5000);
    for (const stream of stalled) stream.cancel();
    await until(() => server.stats().calls.in === 0, "the ends");
  });

  it("share the session, a thousand of them", async () => {
    const feeder = new Feeder();
    const { api } = await pair(provider, [feeder.implementation]);
    const feed = api(Feed);
    const streams = 1000;
    const each = 60;
    // A stream that is done leaves the others behind by no more than its turn.
    let leader = 0;
    let behind = 0;
    const counts = new Array<number>(streams).fill(0);
    await Promise.all(
      counts.map(async (_, index) => {
        for await (const n of feed.numbers(each, { window: { items: 8 } })) {
          counts[index] = n + 1;
          leader = Math.max(leader, n + 1);
          if (leader === each && behind === 0) behind = counts.filter((count) => count === 0).length;
        }
      }),
    );
    expect(new Set(counts)).toEqual(new Set([each]));
    expect(behind).toBe(0);
  });

  it("are tried again before their first item, and not after it", async () => {
    const feeder = new Feeder();
    const { api } = await pair(provider, [feeder.implementation]);
    const feed = api(Feed, { retry: { attempts: 3, baseDelayMs: 1 } });
    feeder.refusals = 2;
    expect(await read(feed, 10)).toBe(10);
    expect(feeder.started).toBe(3);
    feeder.refusals = 3;
    expect(await failure(read(feed, 10))).toMatchObject({ code: "unavailable", attempts: 3 });
    feeder.refusals = 1;
    expect(await failure(read(feed, 10, { retry: false }))).toMatchObject({ code: "unavailable" });
  });

  it("keep the region that their request lends until they end", async () => {
    const feeder = new Feeder();
    const { api, client } = await pair(provider, [feeder.implementation]);
    const memory = new Uint8Array(64);
    const region = client.expose(memory, { access: "write" });
    const offsets: number[] = [];
    for await (const offset of api(Feed).fill({ into: region })) {
      expect(region.grants).toBe(1);
      expect(memory[offset]).toBe(offset + 1);
      if (offsets.push(offset) === 8) feeder.ends.resolve();
    }
    expect(region.grants).toBe(0);
    region.dispose();
  });

  it("get smaller windows when the budget is spent, and still work", async () => {
    const feeder = new Feeder();
    const { api, client } = await pair(provider, [feeder.implementation], {
      client: { limits: { memoryBytes: leastMemoryBytes } },
    });
    const feed = api(Feed);
    const stalled = Array.from({ length: 50 }, () => feed.pieces());
    expect(client.limits.maxStreamBytes).toBe(Math.floor(leastMemoryBytes / 40));
    expect(client.stats().streamBytes).toBeLessThanOrEqual(client.limits.maxStreamBytes);
    expect(await read(feed, 3000)).toBe(3000);
    for (const stream of stalled) stream.cancel();
    await until(() => client.stats().streamBytes === 0, "the budget");
  });

  it("hold an item back at its sender while the share has no room for it", async () => {
    const gate = deferred();
    let started = 0;
    const Slow = service("slow.v1", {
      up: clientStream({ items: bytes(), output: z.number(), window: { bytes: 8192 } }),
    });
    const { api, server } = await pair(
      provider,
      [
        implement(Slow, {
          async up(items) {
            if (started++ === 0) await gate.promise;
            let sum = 0;
            for await (const { byteLength } of items) sum += byteLength;
            return sum;
          },
        }),
      ],
      { server: { limits: exact({ maxPullBytes: 1024 * 1024 }) } },
    );
    const { up } = api(Slow);
    const itemBytes = 300 * 1024;
    const first = up([new Uint8Array(itemBytes)]);
    await until(() => server.stats().counters.bodiesPulled === 1, "the first item");
    // The item of the second stream has no room beside that of the first, which nobody has taken.
    const second = up([new Uint8Array(itemBytes)]);
    await until(() => server.stats().counters.itemsReceived === 2, "the second item");
    // A stream whose item has room is not kept waiting by one whose item has none.
    expect(await up([new Uint8Array(itemBytes / 4)])).toBe(itemBytes / 4);
    expect(server.stats().counters.bodiesPulled).toBe(2);
    // What it has beyond the window and a quarter.
    expect(server.stats().pullingBytes).toBeGreaterThan(itemBytes - 1.25 * 8192);
    expect(server.stats().pullingBytes).toBeLessThan(2 * itemBytes);
    gate.resolve();
    expect(await Promise.all([first, second])).toEqual([itemBytes, itemBytes]);
    await until(() => server.stats().pullingBytes === 0, "the budget");
  });

  it("give up an item that is held back with its stream", async () => {
    const gate = deferred();
    const Slow = service("slow.v1", { down: serverStream({ output: bytes(), window: { bytes: 8192 } }) });
    const itemBytes = 300 * 1024;
    const { api, client, server } = await pair(
      provider,
      [
        implement(Slow, {
          async *down() {
            yield new Uint8Array(itemBytes);
            await gate.promise;
          },
        }),
      ],
      { client: { limits: exact({ maxPullBytes: 1024 * 1024 }) } },
    );
    const { down } = api(Slow);
    const streams = [down(), down()];
    await until(() => client.stats().counters.itemsReceived === 2, "both items");
    await until(() => client.stats().counters.bodiesPulled === 1, "one of them");
    gate.resolve();
    for (const stream of streams.reverse()) stream.cancel();
    await until(() => server.stats().calls.in === 0, "the ends");
    await until(() => client.stats().pullingBytes === 0, "the budget");
    expect(client.stats().counters.bodiesPulled).toBe(1);
    expect(server.stats().offeredBytes).toBe(0);
  });
});

describe("many streams", () => {
  it("ten thousand are open over one session, and each gets its items", async () => {
    const provider = transports[0] as (typeof transports)[number];
    const gate = deferred();
    const Open = service("open.v1", { wait: serverStream({ input: z.number(), output: z.number() }) });
    const limits = { maxRequests: 16_384 };
    const { api, server, client } = await pair(
      provider,
      [
        implement(Open, {
          async *wait(n) {
            yield n;
            await gate.promise;
            yield -n;
          },
        }),
      ],
      { server: { limits }, client: { limits } },
    );
    const { wait } = api(Open);
    const streams = Array.from({ length: 10_000 }, (_, n) => wait(n));
    const firsts = await Promise.all(streams.map((stream) => stream.next()));
    expect(firsts.every(({ value }, n) => value === n)).toBe(true);
    expect(server.stats().calls.in).toBe(10_000);
    gate.resolve();
    const seconds = await Promise.all(streams.map((stream) => stream.next()));
    expect(seconds.every(({ value }, n) => value === -n)).toBe(true);
    const ends = await Promise.all(streams.map((stream) => stream.next()));
    expect(ends.every(({ done }) => done)).toBe(true);
    expect(client.stats().streamBytes).toBe(0);
  });

  it("stay with the backend that they began on", async () => {
    const provider = transports[0] as (typeof transports)[number];
    const names = ["a", "b"];
    const Who = service("who.v1", { am: serverStream({ output: z.string() }) });
    const servers = await Promise.all(
      names.map((name) =>
        openEngine({
          listen: provider.freshUrl(),
          serve: [
            implement(Who, {
              async *am() {
                for (let i = 0; i < 5000; i++) yield name;
              },
            }),
          ],
        }),
      ),
    );
    const client = await openEngine();
    const peer = await client.connect(servers.map(({ urls }) => urls[0] as string));
    const who = peer.client(Who);
    const seen = await Promise.all(
      Array.from({ length: 8 }, async () => {
        const each = new Set<string>();
        for await (const name of who.am()) each.add(name);
        return each;
      }),
    );
    for (const each of seen) expect(each.size).toBe(1);
    expect(new Set(seen.flatMap((each) => [...each])).size).toBe(2);
  });
});
