import { Engine } from "cinnabar/standard";
import { expect, it, onTestFinished } from "vitest";
import { member } from "../group/scripted.test-support.ts";
import { FollowedViews } from "./followed-views.ts";

/** The sum of the first pauses between attempts, in milliseconds. Timers may fire a millisecond early. */
const firstPausesMs = 20 + 40 + 80 + 160 - 4;

it("pauses between members that all refuse connections, longer and longer", async () => {
  const engine = await Engine.open();
  const members = [0, 1, 2].map((rank) => member(rank, 0, `mem://nobody-${rank}`));
  const asked: number[] = [];
  let turn = 0;
  const startedMs = performance.now();
  const elapsedMs = await new Promise<number>((resolve) => {
    const views = new FollowedViews({
      ...{ engine, group: "test", rank: undefined },
      choose: () => members[turn % members.length],
      version: () => 0,
      onPublished: () => undefined,
      onBroken: async ({ rank }) => {
        asked.push(rank);
        turn += 1;
        // Three of them without a pause, and a pause before each of the next four.
        if (asked.length === 7) resolve(performance.now() - startedMs);
      },
    });
    onTestFinished(async () => {
      await views.close();
      await engine.close();
    });
  });
  expect(asked).toEqual([0, 1, 2, 0, 1, 2, 0]);
  expect(elapsedMs).toBeGreaterThan(firstPausesMs);
});
