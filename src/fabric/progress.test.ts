import { describe, expect, it } from "vitest";
import { realTimers } from "../base/time/real-timers.ts";
import type { Port, PortSink } from "./port.ts";
import { type Flushable, Progress } from "./progress.ts";

const sink: PortSink = {
  onMessage: () => {},
  onMessageLost: () => {},
  onPutNotification: () => {},
  onPeerGone: () => {},
};

class FakePort {
  turns = 0;
  arms = 0;
  disarms = 0;
  /** Entries that the next turns bring. */
  entries: number[] = [];
  ready = true;
  busy = false;
  received = 0;
  spinLostUs = 0;
  spinCaught = 0;
  onWake: () => void = () => {};

  progress(_spinUs?: number): number {
    this.turns++;
    return this.entries.shift() ?? 0;
  }

  arm(): boolean {
    this.arms++;
    return this.ready;
  }

  /** Whether the last `disarm` left the event loop watching. */
  watches = false;

  disarm(watches = false): void {
    this.disarms++;
    this.watches = watches;
  }
}

function setUp(flush: () => boolean = () => false) {
  const port = new FakePort();
  const progress = new Progress();
  progress.sink = sink;
  // Polled in every turn, as an outbox that always has messages.
  const queue: Flushable = {
    flushQueued: false,
    flush() {
      progress.flushSoon(queue);
      return flush();
    },
  };
  progress.flushSoon(queue);
  progress.add(port as unknown as Port);
  return { port, progress };
}

async function until(condition: () => boolean): Promise<void> {
  const untilMs = performance.now() + 10_000;
  while (!condition()) {
    if (performance.now() > untilMs) expect.fail("the condition never came true");
    await new Promise(setImmediate);
  }
}

/** Many turns of the loop, in which a sleeping port must not be touched. */
async function manyTurns(): Promise<void> {
  for (let i = 0; i < 200; i++) await new Promise(setImmediate);
}

describe("progress", () => {
  it("polls while there is traffic, then sleeps and costs nothing", async () => {
    const { port, progress } = setUp();
    port.entries = [1, 1, 1];
    await until(() => port.arms === 1);
    expect(port.turns).toBeGreaterThan(3);
    const { turns } = port;
    await manyTurns();
    expect(port.turns).toBe(turns);
    progress.close();
  });

  it("leaves waiting to the kernel for a while when a spin has lost its processor, and then spins again", async () => {
    const { port, progress } = setUp();
    const spins: number[] = [];
    port.progress = (spinUs) => {
      port.turns++;
      spins.push(spinUs as number);
      // As on a crowded machine: each spin loses, however long the test is held up between.
      if (spinUs !== 0) port.spinLostUs += 4000;
      return 0;
    };
    await until(() => {
      port.onWake();
      return spins.includes(0);
    });
    // One turn for each message, not half a millisecond of turns. The policy may poll again in between: two more turns.
    const { arms } = port;
    const from = spins.length;
    await until(() => port.arms === arms + 1);
    expect(spins.length).toBeLessThanOrEqual(from + 3);
    await until(() => {
      port.onWake();
      return spins.lastIndexOf(10) > from;
    });
    progress.close();
  });

  it("polls a port within its wake-up, and keeps it watched, while waiting is left to the kernel", async () => {
    const { port, progress } = setUp();
    await until(() => port.arms === 1);
    const { turns } = port;
    port.onWake();
    // While ports poll, a wake-up only brings the next turn.
    expect(port).toMatchObject({ turns, disarms: 1, watches: false });
    port.progress = (spinUs) => {
      port.turns++;
      if (spinUs !== 0) port.spinLostUs += 4000;
      return 0;
    };
    // A process that is held up here for longer than the policy blocks tries once more.
    await until(() => {
      if (port.arms !== port.disarms + 1) return false;
      const before = port.turns;
      port.onWake();
      return port.turns === before + 1 && port.watches;
    });
    const { arms, turns: polled } = port;
    await until(() => port.arms > arms);
    // It goes to sleep in one call; only a policy that polls again in between makes turns.
    expect(port.turns - polled).toBeLessThanOrEqual(2);
    progress.close();
  });

  it("waits for nothing while work of this thread goes on behind its turns, and waits again after that", async () => {
    let left = 1000;
    const { port, progress } = setUp(() => {
      if (left-- > 0) progress.goOn();
      return false;
    });
    const spins: number[] = [];
    port.progress = (spinUs) => {
      spins.push(spinUs as number);
      // The machine is crowded: a spin loses its processor.
      if (spinUs !== 0) port.spinLostUs += 4000;
      return 0;
    };
    await until(() => spins.length >= 10);
    expect([spins.slice(0, 10).every((spinUs) => spinUs === 0), port.arms]).toEqual([true, 0]);
    await until(() => port.arms > 0);
    expect(spins.some((spinUs) => spinUs > 0)).toBe(true);
    progress.close();
  });

  it("goes on behind the microtasks while it finds something, and gives the loop its turn after 0.1 ms, or 0.02 ms", async () => {
    const { now } = realTimers;
    let nowMs = now();
    realTimers.now = () => nowMs;
    const { port, progress } = setUp();
    const loops: number[] = [];
    const busy: number[] = [];
    let steps = 0;
    let stepsBefore = 0;
    const early: number[] = [];
    port.progress = () => {
      if (steps !== stepsBefore) early.push(port.turns);
      port.turns++;
      nowMs += 1 / 64;
      // The work of a caller with an answer: many microtasks, the last of which must run before the next turn.
      stepsBefore = steps + 100;
      void (async () => {
        for (let i = 0; i < 100; i++) {
          await undefined;
          steps++;
        }
      })();
      return 1;
    };
    try {
      for (let i = 0; i < 10; i++) {
        const { turns } = port;
        await new Promise(setImmediate);
        loops.push(port.turns - turns);
      }
      for (let i = 0; i < 10; i++) {
        const { turns } = port;
        await new Promise(setImmediate);
        busy.push(port.turns - turns);
        nowMs += 0.5;
      }
    } finally {
      realTimers.now = now;
      progress.close();
    }
    expect(early).toEqual([]);
    // Seven turns begin within 0.1 ms, and one follows. The first immediate may precede all turns.
    expect(loops.slice(1)).toEqual(Array.from({ length: 9 }, () => 8));
    // Two begin within 0.02 ms, where the loop has other work.
    expect(busy.slice(2)).toEqual(Array.from({ length: 8 }, () => 3));
  });

  it("goes on behind the microtasks also when what arrives queues an answer at once", async () => {
    const { port, progress } = setUp();
    let loops = 0;
    port.progress = () => {
      port.turns++;
      progress.wake();
      return port.turns < 5 ? 1 : 0;
    };
    const count = () => {
      loops++;
      if (port.turns < 5) setImmediate(count);
    };
    setImmediate(count);
    await until(() => port.turns >= 5);
    progress.close();
    expect(loops).toBeLessThan(4);
  });

  it("is not made by a port from within what a port hands out", async () => {
    const { port, progress } = setUp();
    let depth = 0;
    let deepest = 0;
    port.progress = () => {
      deepest = Math.max(deepest, ++depth);
      if (port.turns++ === 0) progress.poll();
      depth--;
      return 0;
    };
    await until(() => port.turns > 1);
    expect(deepest).toBe(1);
    progress.close();
  });

  it("wakes for what comes, and disarms first", async () => {
    const { port, progress } = setUp();
    await until(() => port.arms === 1);
    const { turns } = port;
    port.onWake();
    await until(() => port.arms === 2);
    expect([port.disarms, port.turns > turns]).toEqual([1, true]);
    progress.close();
  });

  it("does not sleep while a port has something to do", async () => {
    const { port, progress } = setUp();
    port.ready = false;
    await until(() => port.arms > 5);
    port.ready = true;
    await until(() => port.disarms > 0);
    const { arms } = port;
    await until(() => port.arms > arms);
    progress.close();
  });

  it("looks now and then while posted work is under way", async () => {
    const { port, progress } = setUp();
    port.busy = true;
    await until(() => port.arms >= 4);
    port.busy = false;
    progress.close();
  });

  it("flushes before and after it polls", async () => {
    let flushed = 0;
    const { port, progress } = setUp(() => {
      flushed++;
      return false;
    });
    await until(() => port.arms === 1);
    expect(flushed).toBe(2 * port.turns);
    progress.close();
  });

  it("polls at once when asked", () => {
    const { port, progress } = setUp();
    progress.poll();
    expect(port.turns).toBe(1);
    progress.close();
    progress.poll();
    progress.wake();
    expect(port.turns).toBe(1);
  });

  it("leaves a removed port alone", async () => {
    const { port, progress } = setUp();
    await until(() => port.arms === 1);
    progress.remove(port as unknown as Port);
    const { turns } = port;
    port.onWake();
    progress.wake();
    await manyTurns();
    expect(port.turns).toBe(turns);
    progress.close();
  });

  it("stops when a port's entry closes it", async () => {
    const { port, progress } = setUp();
    port.progress = () => {
      port.turns++;
      progress.close();
      return 1;
    };
    await until(() => port.turns === 1);
    await manyTurns();
    expect([port.turns, port.arms]).toEqual([1, 0]);
  });
});
