import { describe, expect, it } from "vitest";
import { z } from "zod";
import { RpcError } from "../../base/errors/rpc-error.ts";
import type { Schema } from "../../contract/schema.ts";
import { ItemReceiver } from "./item-receiver.ts";

const lost = new RpcError({ code: "unavailable", message: "lost" });

function setUp(schema: Schema = z.unknown()) {
  const taken: [number, number][] = [];
  const owner = {
    misfits: [] as (string | undefined)[],
    returns: 0,
    onMisfit(issues: string | undefined, cause?: unknown) {
      owner.misfits.push(issues);
      return new RpcError({ code: "internal", message: issues ?? "threw", cause });
    },
    onReturn() {
      owner.returns++;
    },
  };
  const receiver = new ItemReceiver(schema, owner, true);
  receiver.origin = { onTaken: (cost, heapBytes) => void taken.push([cost, heapBytes]), onDiscarded() {} };
  return { receiver, owner, taken };
}
const value = (item: unknown) => ({ done: false, value: item });
const done = { done: true, value: undefined };

describe("the receiver of items", () => {
  it("gives them in order, whether they or their consumers come first", async () => {
    const { receiver, taken } = setUp();
    const early = [receiver.next(), receiver.next()];
    expect(receiver.awaited).toBe(true);
    for (let n = 0; n < 4; n++) receiver.push(n, 10 + n, n);
    expect(await Promise.all(early)).toEqual([value(0), value(1)]);
    expect(receiver.awaited).toBe(false);
    expect([await receiver.next(), await receiver.next()]).toEqual([value(2), value(3)]);
    expect(taken).toEqual([10, 11, 12, 13].map((cost, n) => [cost, n]));
  });

  it("keeps the order over thousands, with places moved meanwhile", async () => {
    const { receiver } = setUp();
    let next = 0;
    for (let n = 0; n < 5000; n++) {
      receiver.push(n, 1, 0);
      if (n % 3 > 0) expect(await receiver.next()).toEqual(value(next++));
    }
    receiver.end(undefined);
    while (next < 5000) expect(await receiver.next()).toEqual(value(next++));
    expect(await receiver.next()).toEqual(done);
  });

  it("holds back what stands behind an item that is being pulled", async () => {
    const { receiver } = setUp();
    receiver.push("a", 1, 0);
    const long = receiver.reserve(100);
    receiver.push("c", 1, 0);
    const longer = receiver.reserve(100);
    receiver.end(undefined);
    expect(await receiver.next()).toEqual(value("a"));
    const waiting = [receiver.next(), receiver.next(), receiver.next(), receiver.next()];
    receiver.fill(longer, "d", 0);
    receiver.fill(long, "b", 0);
    expect(await Promise.all(waiting)).toEqual([value("b"), value("c"), value("d"), done]);
  });

  it("tells its end behind the items, an error once", async () => {
    const { receiver } = setUp();
    receiver.push("a", 1, 0);
    receiver.end(lost);
    receiver.end(undefined);
    expect(await receiver.next()).toEqual(value("a"));
    await expect(receiver.next()).rejects.toBe(lost);
    expect(await receiver.next()).toEqual(done);
  });

  it("ends at an item that is not pulled any more, whether the end or the loss comes first", async () => {
    const { receiver } = setUp();
    receiver.push("a", 1, 0);
    const place = receiver.reserve(100);
    receiver.push("c", 1, 0);
    receiver.end(lost);
    receiver.fill(place, "b", 0);
    expect(await receiver.next()).toEqual(value("a"));
    await expect(receiver.next()).rejects.toBe(lost);
    const other = setUp().receiver;
    other.reserve(100);
    other.end(undefined);
    const waiting = other.next();
    other.lose(lost);
    await expect(waiting).rejects.toBe(lost);
    expect(await other.next()).toEqual(done);
  });

  it("drops what waits when it is discarded, and tells the error to one who waits", async () => {
    const { receiver } = setUp();
    receiver.push("a", 1, 0);
    receiver.discard(lost);
    await expect(receiver.next()).rejects.toBe(lost);
    receiver.push("b", 1, 0);
    expect(await receiver.next()).toEqual(done);
    const other = setUp().receiver;
    const waiting = [other.next(), other.next()];
    other.discard(lost);
    await expect(waiting[0]).rejects.toBe(lost);
    expect(await waiting[1]).toEqual(done);
  });

  it("tells its owner that the consumer has left, and ends", async () => {
    const { receiver, owner } = setUp();
    receiver.push("a", 1, 0);
    expect(await receiver.return()).toEqual(done);
    expect([owner.returns, receiver.discarded]).toEqual([1, true]);
    expect(await receiver.next()).toEqual(done);
  });

  it("parses items, ends at one that does not fit, and at a schema that throws", async () => {
    const { receiver, owner } = setUp(z.object({ n: z.number().default(7) }));
    receiver.push({}, 1, 0);
    receiver.push({ n: "x" }, 1, 0);
    receiver.push({ n: 1 }, 1, 0);
    expect(await receiver.next()).toEqual(value({ n: 7 }));
    await expect(receiver.next()).rejects.toMatchObject({ code: "internal" });
    expect(owner.misfits[0]).toContain("item.n");
    expect(await receiver.next()).toEqual(done);
    const thrown = new Error("broken schema");
    const broken = setUp({
      "~standard": {
        version: 1,
        vendor: "by hand",
        validate: () => {
          throw thrown;
        },
      },
    }).receiver;
    const waiting = broken.next();
    broken.push(1, 1, 0);
    await expect(waiting).rejects.toMatchObject({ cause: thrown });
  });

  it("keeps the order of items that are checked in their own time", async () => {
    const slow: Schema = {
      "~standard": {
        version: 1,
        vendor: "by hand",
        validate: async (given) =>
          given === "bad" ? { issues: [{ message: "bad" }] } : { value: `${given}!` },
      },
    };
    const { receiver } = setUp(slow);
    for (const item of ["a", "b", "bad"]) receiver.push(item, 1, 0);
    const all = await Promise.allSettled([receiver.next(), receiver.next(), receiver.next()]);
    expect(all.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "rejected"]);
    expect(all[1]).toMatchObject({ value: value("b!") });
  });
});
