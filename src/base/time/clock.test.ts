import { expect, it } from "vitest";
import { realClock } from "./clock.ts";

it("holds a timer that is longer than Node's, which Node would fire at once", async () => {
  const fired: string[] = [];
  const cancel = realClock.timer(1.5 * 2 ** 31, () => fired.push("timer"));
  const wakeUp = realClock.wakeUp(1.5 * 2 ** 31, () => fired.push("wake-up"));
  await new Promise<void>((resolve) => realClock.timer(20, resolve));
  cancel();
  wakeUp.cancel();
  expect(fired).toEqual([]);
});
