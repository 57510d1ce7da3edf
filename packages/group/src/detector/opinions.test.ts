import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Status, Update } from "./message.ts";
import { isNews, Opinions, Roster } from "./opinions.ts";

const roster = new Roster([0, 1, 2].map((id) => ({ id, addresses: [`host:${id}`] })));

/** A member is alive and stalled at different incarnations. */
const update = fc
  .record({
    incarnation: fc.nat(5),
    status: fc.constantFrom<Status>("alive", "suspect", "dead", "left"),
  })
  .map(({ incarnation, status }): Update => {
    const isStalled = status === "alive" && incarnation % 2 === 1;
    return { member: 1, incarnation, status: isStalled ? "stalled" : status };
  });

function after(updates: readonly Update[]): Opinions {
  const opinions = new Opinions(roster);
  for (const each of updates) {
    const believed = opinions.of(each.member);
    if (believed !== undefined && isNews(each, believed)) opinions.set(each);
  }
  return opinions;
}

describe("opinions", () => {
  it("are the same whatever the order and the repetition of updates", () => {
    const orders = fc
      .array(update, { maxLength: 8 })
      .chain((all) =>
        fc.tuple(fc.constant(all), fc.shuffledSubarray([...all, ...all], { minLength: 2 * all.length })),
      );
    const check = ([all, shuffled]: readonly [Update[], Update[]]) => {
      expect(after(shuffled).of(1)).toEqual(after(all).of(1));
    };
    fc.assert(fc.property(orders, check), { seed: 1 });
  });

  it("count who lives", () => {
    const opinions = after([{ member: 1, status: "dead", incarnation: 0 }]);
    expect(opinions.living).toBe(2);
    opinions.set({ member: 1, status: "suspect", incarnation: 1 });
    opinions.set({ member: 2, status: "left", incarnation: 1 });
    expect([opinions.living, opinions.isLiving(1), opinions.isLiving(2)]).toEqual([2, true, false]);
  });

  it("take memory only where they differ from the roster", () => {
    const opinions = after([{ member: 1, status: "dead", incarnation: 0 }]);
    expect(opinions.differing(1)).toEqual({ status: "dead", incarnation: 0 });
    opinions.adopt(new Roster([{ id: 1, addresses: ["host:1"], incarnation: 1 }]));
    expect([opinions.differing(1), opinions.of(1), opinions.of(2), opinions.living]).toEqual([
      undefined,
      { status: "alive", incarnation: 1 },
      undefined,
      1,
    ]);
  });

  it("outlast a roster that knows no later incarnation", () => {
    const opinions = after([{ member: 1, status: "dead", incarnation: 3 }]);
    opinions.adopt(new Roster([{ id: 1, addresses: ["host:1"], incarnation: 3 }]));
    expect(opinions.of(1)).toEqual({ status: "dead", incarnation: 3 });
  });
});

describe("a roster", () => {
  it("refuses two members of one id", () => {
    const twice = [1, 2, 1].map((id) => ({ id, addresses: [`host:${id}`] as [string] }));
    expect(() => new Roster(twice)).toThrow("the group has two members with the id 1");
  });
});
