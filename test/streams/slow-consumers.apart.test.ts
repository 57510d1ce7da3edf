import { bytes, clientStream, implement, serverStream, service } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { exact } from "../matrix/exact-limits.ts";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { deferred, until } from "../matrix/wait.ts";

const KiB = 1024;
/** Longer than a message of any transport. */
const itemBytes = 100 * KiB;
const items = 40;

const Slow = service("slow.v1", {
  down: serverStream({ input: z.number(), output: bytes() }),
  up: clientStream({ items: bytes(), output: z.array(z.number()) }),
});

function* filled(count: number) {
  for (let n = 0; n < count; n++) yield new Uint8Array(itemBytes).fill(n);
}

describe.each(transports)("a slow consumer over $name", (provider) => {
  // One peer's share of it is less than an item, and the window lets three of them come.
  const limits = exact({ maxPullBytes: 128 * KiB });

  it("at the client gets all items of a long stream", async () => {
    const { api, client } = await pair(
      provider,
      [implement(Slow, { down: (count) => filled(count), up: async () => [] })],
      { client: { limits } },
    );
    const seen: number[] = [];
    for await (const item of api(Slow).down(items)) {
      expect(item.byteLength).toBe(itemBytes);
      seen.push(item[0] as number);
      // It takes the next one when as many have come as the window lets.
      const most = Math.min(items, seen.length + 1);
      await until(() => client.stats().counters.itemsReceived >= most, "the next item");
    }
    expect(seen).toEqual(Array.from({ length: items }, (_, n) => n));
    expect(client.stats().pullingBytes).toBe(0);
  });

  it("at the server gets all items of a long stream", async () => {
    const begin = deferred();
    const { api, server } = await pair(
      provider,
      [
        implement(Slow, {
          down: () => [],
          async up(all) {
            const seen: number[] = [];
            await begin.promise;
            for await (const item of all) {
              seen.push(item[0] as number);
              const most = Math.min(items, seen.length + 1);
              await until(() => server.stats().counters.itemsReceived >= most, "the next item");
            }
            return seen;
          },
        }),
      ],
      { server: { limits } },
    );
    const answer = api(Slow).up(filled(items));
    await until(() => server.stats().counters.itemsReceived === 3, "a full window");
    begin.resolve();
    expect(await answer).toEqual(Array.from({ length: items }, (_, n) => n));
    expect(server.stats().pullingBytes).toBe(0);
  });

  it.each(["client", "server"])("gets all items though its %s may not offer two of them", async (side) => {
    const { api, client, server } = await pair(
      provider,
      [
        implement(Slow, {
          down: (count) => filled(count),
          async up(all) {
            const seen: number[] = [];
            for await (const item of all) seen.push(item[0] as number);
            return seen;
          },
        }),
      ],
      { [side]: { limits: exact({ maxOfferBytes: 128 * KiB }) } },
    );
    const expected = Array.from({ length: items }, (_, n) => n);
    const { up, down } = api(Slow);
    if (side === "server") {
      const seen: number[] = [];
      for await (const item of down(items)) seen.push(item[0] as number);
      expect(seen).toEqual(expected);
    } else {
      expect(await up(filled(items))).toEqual(expected);
      const writer = up.open();
      const sent = expected.map((n) => writer.send(new Uint8Array(itemBytes).fill(n)));
      expect(await writer.end()).toEqual(expected);
      await Promise.all(sent);
    }
    expect(client.stats().offeredBytes + server.stats().offeredBytes).toBe(0);
  });

  it("gets all items of many streams that fit a message and exceed their windows", async () => {
    const many = 20;
    const begin = deferred();
    const Narrow = service("narrow.v1", {
      up: clientStream({ items: bytes(), output: z.number(), window: { bytes: 8 * KiB } }),
    });
    const { api, server } = await pair(
      provider,
      [
        implement(Narrow, {
          async up(all) {
            await begin.promise;
            let sum = 0;
            for await (const { byteLength } of all) sum += byteLength;
            return sum;
          },
        }),
      ],
      // Half of it, which one peer gets, has room for five items.
      { server: { limits: exact({ maxPullBytes: 256 * KiB }) } },
    );
    const short = Array.from({ length: 3 }, () => new Uint8Array(24 * KiB));
    const answers = Array.from({ length: many }, () => api(Narrow).up(short));
    await until(() => server.stats().counters.itemsReceived === many, "their first items");
    expect(server.stats().pullingBytes).toBeLessThanOrEqual(128 * KiB);
    begin.resolve();
    expect(await Promise.all(answers)).toEqual(Array.from({ length: many }, () => 3 * 24 * KiB));
  });
});
