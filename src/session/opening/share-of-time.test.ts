import { describe, expect, it } from "vitest";
import { FakeClock } from "../../base/time/fake-clock.test-support.ts";
import { ShareOfTime } from "./share-of-time.ts";

const turn = () => new Promise(setImmediate);

describe("the share of time that strangers have", () => {
  it("is one step a turn, in order at one host", async () => {
    const time = new ShareOfTime(new FakeClock(), 1);
    const done: number[] = [];
    for (let i = 0; i < 3; i++) time.do("a", () => void done.push(i));
    expect(done).toEqual([]);
    await turn();
    expect(done).toEqual([0]);
    await turn();
    await turn();
    expect(done).toEqual([0, 1, 2]);
  });

  it("is no more than the share, however many wait", async () => {
    const clock = new FakeClock();
    const time = new ShareOfTime(clock, 0.2);
    let steps = 0;
    // Each takes 5 ms of the thread.
    for (let i = 0; i < 100; i++)
      time.do("a", () => {
        steps++;
        clock.advance(5);
      });
    const beginMs = clock.now();
    while (clock.now() < beginMs + 1000) {
      for (let turns = 0; turns < 3; turns++) await turn();
      clock.advance(1);
    }
    // A fifth of a second, and what was saved up before.
    expect(steps * 5).toBeGreaterThan(150);
    expect(steps * 5).toBeLessThan(250);
  });

  it("passes over a step that is taken back, and keeps nothing of it", async () => {
    const time = new ShareOfTime(new FakeClock(), 1);
    const done: number[] = [];
    for (let i = 0; i < 100; i++) time.do("a", () => expect.unreachable())();
    time.do("a", () => void done.push(1));
    await turn();
    expect(done).toEqual([1]);
  });

  it("goes by turns of hosts: one with a single handshake does not wait behind one with many", async () => {
    const time = new ShareOfTime(new FakeClock(), 1);
    const done: string[] = [];
    for (let i = 0; i < 50; i++) time.do("a", () => void done.push(`a${i}`));
    time.do("b", () => void done.push("b0"));
    time.do("b", () => void done.push("b1"));
    for (let i = 0; i < 5; i++) await turn();
    expect(done).toEqual(["a0", "b0", "a1", "b1", "a2"]);
  });

  it("does nothing more once closed", async () => {
    const time = new ShareOfTime(new FakeClock(), 1);
    time.do("a", () => expect.unreachable());
    time.close();
    await turn();
    await turn();
  });
});
