import { implement, RpcError, serverStream, service, unary } from "cinnabar";
import { connected } from "cinnabar/testing";
import { expect, it } from "vitest";
import { z } from "zod";

const Prices = service("prices.v1", {
  of: unary({ input: z.string(), output: z.number() }),
  all: serverStream({ output: z.number() }),
});
const prices = implement(Prices, {
  of: (item) => item.length,
  async *all() {
    yield 1;
    yield 2;
    throw new RpcError({ code: "aborted", message: "no more" });
  },
});

it("connects a client to a service, several at once, and ends both engines", async () => {
  const one = await connected(Prices, prices);
  const other = await connected(Prices, [prices]);
  expect(await Promise.all([one.client.of("tea"), other.client.of("milk")])).toEqual([3, 4]);
  expect(one.server.urls).not.toEqual(other.server.urls);
  await one.close();
  await other[Symbol.asyncDispose]();
  await expect(one.client.of("tea")).rejects.toMatchObject({ code: "unavailable" });
  await expect(one.engine.connect("mem://x")).rejects.toThrow("closed");
  await expect(one.engine.close()).resolves.toBeUndefined();
});

it("reads a stream to an array, or to its error", async () => {
  const Counts = service("counts.v1", {
    to: serverStream({ input: z.number(), output: z.number() }),
  });
  const counts = implement(Counts, {
    async *to(last) {
      for (let count = 1; count <= last; count++) yield count;
    },
  });
  const pair = await connected(Counts, counts);
  try {
    expect(await pair.client.to(3000).toArray()).toEqual(
      Array.from({ length: 3000 }, (_, index) => index + 1),
    );
    expect(await pair.client.to(0).toArray()).toEqual([]);
    const begun = pair.client.to(3);
    await begun.next();
    expect(await begun.toArray()).toEqual([2, 3]);
  } finally {
    await pair.close();
  }
  const failing = await connected(Prices, prices);
  await expect(failing.client.all().toArray()).rejects.toMatchObject({ code: "aborted" });
  await failing.close();
});
