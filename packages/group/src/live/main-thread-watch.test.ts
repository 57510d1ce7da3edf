import { expect, it } from "vitest";
import { MainThreadWatch } from "./main-thread-watch.ts";

it("a main thread that does not answer in time stands still, until it answers", () => {
  const asked: number[] = [];
  const watch = new MainThreadWatch(1000, (number) => asked.push(number));
  expect(watch.check(0)).toBe(false);
  expect([watch.check(1000), watch.check(1001), asked]).toEqual([false, true, [1]]);
  watch.onAnswer(1);
  expect([watch.check(5000), watch.check(5900), asked]).toEqual([false, false, [1, 2]]);
});
