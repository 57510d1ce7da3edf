import { clientStream, Engine, implement, type Middleware, service, unary } from "cinnabar/standard";
import { expect, it } from "vitest";
import { offerSchema } from "../collective/message-schema.ts";
import { stampedClient } from "./freshness.ts";

const Sums = service("sums.v1", {
  double: unary({ input: offerSchema, output: offerSchema }),
  sum: clientStream({ items: offerSchema, output: offerSchema }),
});

it("a client of a member has every way to begin a call, and each goes by way of the stamp while that is due", async () => {
  const sums = implement(Sums, {
    double: (number) => 2 * number,
    async sum(numbers) {
      let all = 0;
      for await (const number of numbers) all += number;
      return all;
    },
  });
  await using server = await Engine.open({ listen: `mem://stamped-client-${process.pid}`, serve: [sums] });
  await using engine = await Engine.open();
  const peer = engine.lazyPeer(server.urls[0] as string);
  const stamps: string[] = [];
  const stamp: Middleware = (call, next) => {
    stamps.push(call.method);
    return next();
  };
  for (const isDue of [true, false]) {
    const stamped = peer.client(Sums, { middleware: [stamp] });
    const client = stampedClient(peer.client(Sums), stamped, () => isDue);
    expect(await client.double(2)).toBe(4);
    expect(await client.double.result(3)).toEqual({ ok: true, value: 6 });
    expect(await client.sum([1, 2, 3])).toBe(6);
    expect(await client.sum.result([1, 2])).toEqual({ ok: true, value: 3 });
    const writer = client.sum.open();
    await writer.send(5);
    expect(await writer.end()).toBe(5);
  }
  expect(stamps).toEqual([...new Array(2).fill("sums.v1/double"), ...new Array(3).fill("sums.v1/sum")]);
});
