import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Lane } from "../src/lane.ts";
import type { ThreadEnd } from "../src/lane-thread.ts";
import { type LaneDeath, resolveLanesOptions } from "../src/options.ts";

interface Thread {
  end(how: ThreadEnd): void;
}

const { threads, system } = vi.hoisted(() => ({ threads: [] as Thread[], system: { refuses: false } }));

vi.mock("../src/lane-thread.ts", () => ({
  /** A thread that never begins to serve, and ends when the test decides. */
  LaneThread: class implements Thread {
    readonly listening = new Promise<never>(() => {});
    readonly ended: Promise<ThreadEnd>;
    end: (how: ThreadEnd) => void = () => {};

    constructor() {
      if (system.refuses) throw new Error("Worker initialization failure: EAGAIN");
      this.ended = new Promise((resolve) => {
        this.end = resolve;
      });
      threads.push(this);
    }

    terminate(): void {
      this.end(died);
    }
  },
}));

const died: ThreadEnd = { exitCode: 1, error: undefined };
const options = resolveLanesOptions(new URL("file:///service.js"), { listen: "shm://a" }, 1);

describe("a lane that has died", () => {
  beforeEach(() => {
    vi.useFakeTimers();
    threads.length = 0;
    system.refuses = false;
  });
  afterEach(() => void vi.useRealTimers());

  it("gets another thread", async () => {
    const onLaneDied = vi.fn();
    const lane = new Lane(0, options, { onLaneChanged() {}, onLaneDied });
    threads[0]?.end(died);
    await vi.advanceTimersByTimeAsync(1000);
    expect(onLaneDied).toHaveBeenCalledOnce();
    expect([threads.length, lane.state]).toEqual([2, "starting"]);
    await lane.close();
  });

  it("gets none when the listener of its death closes it", async () => {
    const closing: Promise<void>[] = [];
    const lane: Lane = new Lane(0, options, {
      onLaneChanged() {},
      onLaneDied: () => void closing.push(lane.close()),
    });
    threads[0]?.end(died);
    await vi.advanceTimersByTimeAsync(60_000);
    await Promise.all(closing);
    expect([closing.length, threads.length, lane.state]).toEqual([1, 1, "closed"]);
  });

  it("is reported, and tried again less and less often, while no thread can start", async () => {
    const deaths: LaneDeath[] = [];
    const told = { onLaneChanged() {}, onLaneDied: (death: LaneDeath) => void deaths.push(death) };
    const lane = new Lane(0, options, told);
    system.refuses = true;
    threads[0]?.end(died);
    // 0, 100, 200, 400, 800, 1600, 3200 and from then on 5000 ms.
    await vi.advanceTimersByTimeAsync(6300 + 3 * 5000);
    expect(deaths.map(({ replacedInMs }) => replacedInMs)).toEqual([
      0, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000, 5000,
    ]);
    expect([deaths.at(-1)?.error?.message, lane.state]).toEqual([
      expect.stringContaining("no thread could be started for lane 0: Worker initialization failure"),
      "waiting",
    ]);
    system.refuses = false;
    await vi.advanceTimersByTimeAsync(5000);
    expect([threads.length, lane.state]).toEqual([2, "starting"]);
    await lane.close();
  });

  it("starts no thread when it is closed while none can be had", async () => {
    const lane = new Lane(0, options, { onLaneChanged() {}, onLaneDied() {} });
    system.refuses = true;
    threads[0]?.end(died);
    await vi.advanceTimersByTimeAsync(1000);
    await lane.close();
    system.refuses = false;
    await vi.advanceTimersByTimeAsync(60_000);
    expect([threads.length, lane.state]).toEqual([1, "closed"]);
  });
});
