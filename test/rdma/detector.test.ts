import { afterEach, describe, expect, it, vi } from "vitest";
import type { DetectorEvent } from "../../packages/group/src/detector/events.ts";
import { resolveDetectorOptions } from "../../packages/group/src/detector/options.ts";
import { Roster } from "../../packages/group/src/detector/roster.ts";
import { Driver } from "../../packages/group/src/live/driver.ts";
import { openFabric } from "../../packages/group/src/live/fabric-transport.ts";
import { verbsDevices } from "../matrix/verbs.ts";

const soon = { timeout: 60_000, interval: 20 };
// Short suspicions, because this waits for them; long enough that a member of this process is not taken for dead.
const detector = resolveDetectorOptions({ periodMs: 500, suspicionFactor: 2, suspicionMaxFactor: 2 });

// A file without any test would count as broken.
if (verbsDevices.length === 0) it.skip("verbs: no device is lent to the tests", () => {});

describe.each(verbsDevices)("detectors over verbs on $name", ({ host }) => {
  const roster = new Roster([0, 1, 2].map((id) => ({ id, addresses: [`verbs://${host}:${7950 + id}`] })));
  const running: Driver[] = [];
  afterEach(async () => {
    await Promise.all(running.splice(0).map((driver) => driver.close()));
  });

  async function start(self: number) {
    const events: DetectorEvent[] = [];
    const driver = await Driver.start(
      { self, roster, detector, group: 1, onEvent: (event) => events.push(event) },
      openFabric({ packetTimeoutMs: 10_000 }),
    );
    running.push(driver);
    /** What it believes of a member. */
    const believes = (member: number) =>
      events
        .flatMap((event) => (event.type === "status" && event.member === member ? [event.status] : []))
        .at(-1);
    return { driver, believes };
  }

  it("hear each other, and tell a member that is gone from one that left", async () => {
    const [first, second, third] = [await start(0), await start(1), await start(2)];
    await vi.waitFor(() => {
      for (const { driver } of [first, second, third])
        expect(driver.stats.probes - driver.stats.failedProbes).toBeGreaterThan(3);
    }, soon);
    // It says nothing of its end.
    await third.driver.close();
    await vi.waitFor(() => expect([first.believes(2), second.believes(2)]).toEqual(["dead", "dead"]), soon);
    await second.driver.leave();
    await vi.waitFor(() => expect(first.believes(1)).toBe("left"), soon);
    expect(first.driver.stats.refused).toEqual({ malformed: 0, foreign: 0, unauthentic: 0 });
  });
});
