import { describe, expect, it } from "vitest";
import { FakeClock } from "../../base/time/fake-clock.test-support.ts";
import { ShareOfTime } from "./share-of-time.ts";

const turn = () => new Promise(setImmediate);

describe("the share of time that strangers have", () => {
  it("is one step a turn, in order", async () => {
    const time = new ShareOfTime(new FakeClock(), 1);
    const done: number[] = [];
    for (let i = 0; i < 3; i++) time.do(() => void done.push(i));
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
      time.do(() => {
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
    for (let i = 0; i < 100; i++) time.do(() => expect.unreachable())();
    time.do(() => void done.push(1));
    await turn();
    expect(done).toEqual([1]);
  });

  it("does nothing more once closed", async () => {
    const time = new ShareOfTime(new FakeClock(), 1);
    time.do(() => expect.unreachable());
    time.close();
    await turn();
    await turn();
  });
});
