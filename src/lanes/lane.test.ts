import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Lane } from "./lane.ts";
import type { ThreadEnd } from "./lane-thread.ts";
import { resolveLanesOptions } from "./options.ts";

interface Thread {
  end(how: ThreadEnd): void;
}

const { threads } = vi.hoisted(() => ({ threads: [] as Thread[] }));

vi.mock("./lane-thread.ts", () => ({
  /** A thread that never comes to serve, and ends when the test says so. */
  LaneThread: class implements Thread {
    readonly listening = new Promise<never>(() => {});
    readonly ended: Promise<ThreadEnd>;
    end: (how: ThreadEnd) => void = () => {};

    constructor() {
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

  it("gets none when whoever is told of its death closes it", async () => {
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
});
