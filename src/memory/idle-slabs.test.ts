import { describe, expect, it } from "vitest";
import { FakeClock } from "../base/time/fake-clock.test-support.ts";
import { IdleSlabs } from "./idle-slabs.ts";

function setUp() {
  const clock = new FakeClock();
  const dropped: string[] = [];
  const idle = new IdleSlabs<string>(clock, 100, (slab) => void dropped.push(slab));
  return { clock, dropped, idle };
}

describe("idle slabs", () => {
  it("are dropped one by one, each after its own time", () => {
    const { clock, dropped, idle } = setUp();
    idle.add("a");
    clock.advance(60);
    idle.add("b");
    clock.advance(39);
    expect(dropped).toEqual([]);
    clock.advance(1);
    expect(dropped).toEqual(["a"]);
    clock.advance(60);
    expect(dropped).toEqual(["a", "b"]);
  });

  it("stay when they are used again, and begin a new time when they are idle again", () => {
    const { clock, dropped, idle } = setUp();
    idle.add("a");
    idle.delete("a");
    clock.advance(90);
    idle.add("a");
    clock.advance(99);
    expect(dropped).toEqual([]);
    clock.advance(1);
    expect(dropped).toEqual(["a"]);
  });

  it("are dropped early in the order of their idleness", () => {
    const { clock, dropped, idle } = setUp();
    for (const slab of ["a", "b", "c"]) idle.add(slab);
    expect([idle.dropOldest(), dropped]).toEqual([true, ["a"]]);
    idle.dropAll();
    expect([idle.dropOldest(), dropped]).toEqual([false, ["a", "b", "c"]]);
    clock.advance(1000);
    expect(dropped).toHaveLength(3);
  });
});
