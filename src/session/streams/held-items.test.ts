import { describe, expect, it } from "vitest";
import { ByteBudget } from "../../base/flow/byte-budget.ts";
import { FakeClock } from "../../base/time/fake-clock.test-support.ts";
import type { Session } from "../connection/session.ts";
import { HeldItems } from "./item-arrivals.ts";

/** Items of `bytes` each, which wait for room in a share of 500 of 1,000. */
function setUp() {
  const clock = new FakeClock();
  const share = new ByteBudget(1000).share();
  const told: number[] = [];
  const taken: string[] = [];
  const session = {
    account: { pulls: share },
    remote: { bodyStallMs: 400 },
    services: { realClock: clock },
  } as unknown as Session;
  const held = () => new HeldItems(session, () => void told.push(clock.now() - 1000));
  const item = (name: string, bytes: number) => () => share.take(bytes) && taken.push(name) > 0;
  return { clock, share, told, taken, held, item };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

describe("items that wait for room", () => {
  it("are taken at once where there is room, in their order, and one stream does not wait for another", async () => {
    const { share, taken, held, item } = setUp();
    const [one, other] = [held(), held()];
    one.add(item("a", 400));
    one.add(item("b", 400));
    one.add(item("c", 1));
    other.add(item("d", 50));
    expect(taken).toEqual(["a", "d"]);
    share.give(50);
    await turn();
    expect(taken).toEqual(["a", "d"]);
    share.give(400);
    await turn();
    expect(taken).toEqual(["a", "d", "b", "c"]);
    share.give(401);
    await turn();
    expect([share.bytes, taken.length]).toEqual([0, 4]);
  });

  it("let their sender hear of them, four times as often as it asks for, until they are taken", async () => {
    const { clock, share, told, taken, held, item } = setUp();
    const items = held();
    items.add(item("a", 400));
    clock.advance(1000);
    expect(told).toEqual([]);
    items.add(item("b", 400));
    clock.advance(350);
    expect(told).toEqual([1100, 1200, 1300]);
    share.give(400);
    await turn();
    clock.advance(1000);
    expect([told.length, taken, clock.timers]).toEqual([3, ["a", "b"], 0]);
  });

  it("are dropped with their stream, and wait no more", async () => {
    const { clock, share, held, item } = setUp();
    let isDropped = false;
    let tries = 0;
    const items = held();
    items.add(item("a", 400));
    items.add(() => {
      tries++;
      return isDropped;
    });
    isDropped = true;
    items.drop();
    share.give(400);
    await turn();
    expect([tries, clock.timers]).toEqual([2, 0]);
  });

  it("all try after bytes were given back, some in each turn", async () => {
    const { share, taken, held, item } = setUp();
    held().add(item("first", 500));
    for (let i = 0; i < 200; i++) held().add(item("large", 5000));
    held().add(item("small", 100));
    share.give(300);
    for (let turns = 0; turns < 3; turns++) await turn();
    expect(taken).toEqual(["first"]);
    await turn();
    expect(taken).toEqual(["first", "small"]);
  });
});
