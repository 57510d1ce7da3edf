import { clientStream, duplexStream, implement, RpcError, serverStream, service } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";

const Numbers = service("numbers.v1", {
  count: serverStream({
    input: z.object({ to: z.number(), bytes: z.number().default(0) }),
    output: z.object({ n: z.number(), pad: z.string() }),
    errors: { TooMany: z.object({ most: z.number() }) },
  }),
  sum: clientStream({ items: z.number(), output: z.number(), input: z.object({ from: z.number() }) }),
  echo: duplexStream({ items: z.string(), output: z.string() }),
});

const numbers = implement(Numbers, {
  async *count({ to, bytes }, call) {
    for (let n = 0; n < to; n++) {
      if (n === 5000) call.fail("TooMany", { most: 5000 });
      yield { n, pad: "x".repeat(bytes) };
    }
  },
  async sum(items, call) {
    let sum = call.input.from;
    for await (const item of items) sum += item;
    return sum;
  },
  async *echo(items) {
    for await (const item of items) yield item.toUpperCase();
  },
});

async function* upTo(n: number): AsyncGenerator<number> {
  for (let i = 0; i < n; i++) yield i;
}

describe.each(transports)("streams over $name", (provider) => {
  it("carry the items of the server in order", async () => {
    const { api } = await pair(provider, [numbers]);
    const client = api(Numbers);
    for (const to of [0, 1, 2, 3000]) {
      const got: number[] = [];
      for await (const { n } of client.count({ to })) got.push(n);
      expect(got).toEqual(Array.from({ length: to }, (_, i) => i));
    }
  });

  it("carry items that are too long for a message", async () => {
    const { api } = await pair(provider, [numbers]);
    const lengths: number[] = [];
    for await (const { pad } of api(Numbers).count({ to: 12, bytes: 100_000 })) lengths.push(pad.length);
    expect(lengths).toEqual(Array.from({ length: 12 }, () => 100_000));
  });

  it("carry the items of the client and its opening input", async () => {
    const { api } = await pair(provider, [numbers]);
    const { sum } = api(Numbers);
    expect(await sum({ from: 1 }, upTo(3000))).toBe(1 + (3000 * 2999) / 2);
    expect(await sum({ from: 7 }, [])).toBe(7);
    expect(await sum({ from: 0 }, [1, 2, 3])).toBe(6);
    expect(await sum({ from: 0 }, ReadableStream.from([4, 5]))).toBe(9);
  });

  it("carry items both ways", async () => {
    const { api } = await pair(provider, [numbers]);
    const { echo } = api(Numbers);
    const chat = echo.open();
    await chat.send("a");
    expect(await chat.next()).toEqual({ done: false, value: "A" });
    await chat.send("b");
    expect(await chat.next()).toEqual({ done: false, value: "B" });
    await chat.end();
    expect(await chat.next()).toEqual({ done: true, value: undefined });
    const all: string[] = [];
    for await (const item of echo(["x", "y"])) all.push(item);
    expect(all).toEqual(["X", "Y"]);
  });

  it("carry metadata with the request and with the end", async () => {
    const Tagged = service("tagged.v1", { tags: serverStream({ output: z.string() }) });
    const { api } = await pair(provider, [
      implement(Tagged, {
        async *tags(_, call) {
          yield String(call.metadata.get("tenant"));
          call.trailers.set("count", "1");
        },
      }),
    ]);
    let count: unknown;
    const stream = api(Tagged).tags({
      metadata: { tenant: "acme" },
      onTrailers: (metadata) => {
        count = metadata.get("count");
      },
    });
    const got: string[] = [];
    for await (const tag of stream) got.push(tag);
    expect([got, count]).toEqual([["acme"], "1"]);
  });

  it("end with a declared error after the items before it", async () => {
    const { api } = await pair(provider, [numbers]);
    let got = 0;
    const error = await failure(
      (async () => {
        for await (const _ of api(Numbers).count({ to: 6000 })) got++;
      })(),
    );
    expect(got).toBe(5000);
    expect(error).toBeInstanceOf(RpcError);
    expect(error).toMatchObject({ reason: "TooMany", data: { most: 5000 } });
  });
});
