import { describe, expect, it } from "vitest";
import { FakeClock } from "../time/fake-clock.test-support.ts";
import { WaitingRoom } from "./waiting-room.ts";

function setUp() {
  const clock = new FakeClock();
  const expired: string[] = [];
  const room = new WaitingRoom<string>(clock, 3, 100, (item) => expired.push(item));
  return { clock, expired, room };
}

describe("a waiting room", () => {
  it("gives the oldest first, and takes no more than it may", () => {
    const { room, clock } = setUp();
    expect(["a", "b", "c", "d"].map((item) => room.add(item))).toEqual([true, true, true, false]);
    expect([room.take(), room.take(), room.take(), room.take()]).toEqual(["a", "b", "c", undefined]);
    expect(clock.timers).toBe(0);
  });

  it("lets each wait for its own time, with one timer", () => {
    const { room, clock, expired } = setUp();
    room.add("a");
    clock.advance(60);
    room.add("b");
    expect(clock.timers).toBe(1);
    clock.advance(40);
    expect(expired).toEqual(["a"]);
    clock.advance(59);
    expect(expired).toEqual(["a"]);
    clock.advance(1);
    expect([expired, room.size, clock.timers]).toEqual([["a", "b"], 0, 0]);
  });

  it("forgets those that are dropped", () => {
    const { room, clock, expired } = setUp();
    room.add("a");
    room.add("b");
    room.drop((item) => item === "a");
    clock.advance(100);
    expect(expired).toEqual(["b"]);
  });
});
