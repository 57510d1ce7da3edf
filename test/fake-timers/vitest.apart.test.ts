import { Engine, implement, RpcError, service, unary } from "cinnabar";
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { failure } from "../matrix/wait.ts";

const Reports = service("reports.v1", {
  now: unary({ output: z.number() }),
  never: unary(),
  slow: unary({ output: z.string() }),
  flaky: unary({ output: z.number(), idempotent: true }),
  notify: unary({ input: z.number(), output: z.number() }),
});

let calls = 0;
const reports = implement(Reports, {
  now: () => Date.now(),
  never: () => new Promise<never>(() => {}),
  slow: () => new Promise((resolve) => setTimeout(() => resolve("made"), 60_000)),
  flaky: () => {
    if (++calls < 3) throw new RpcError({ code: "unavailable", message: "not yet", retryAfterMs: 5_000 });
    return calls;
  },
  notify: (value) => value + 1,
});

/** An engine that serves the reports, and a client of it. */
async function reportsOver(name: string) {
  const server = await Engine.open({ listen: `mem://${name}`, serve: [reports] });
  const engine = await Engine.open();
  onTestFinished(async () => {
    await engine.close();
    await server.close();
  });
  return (await engine.connect(`mem://${name}`)).client(Reports);
}

/** Lets what is under way arrive, without advancing the fake time. */
const settle = () => vi.advanceTimersByTimeAsync(0);

describe("mem:// under vitest's fake timers", () => {
  afterEach(() => void vi.useRealTimers());

  describe("that were installed before the engines open", () => {
    beforeEach(() => {
      calls = 0;
      vi.useFakeTimers();
    });

    it("connects, calls, drains and closes without a tick of fake time", async () => {
      vi.setSystemTime(new Date("2040-02-01"));
      const server = await Engine.open({ listen: "mem://still", serve: [reports] });
      const engine = await Engine.open();
      const client = (await engine.connect("mem://still")).client(Reports);
      expect(await client.now()).toBe(Date.parse("2040-02-01"));
      expect(await Promise.all([1, 2, 3].map((value) => client.notify(value)))).toEqual([2, 3, 4]);
      expect((await engine.drain()).aborted).toEqual([]);
      await server.close();
    });

    it.each([1, 50, 10_000])(
      "ends a call of %i ms when that much fake time has passed, not before",
      async (timeoutMs) => {
        const client = await reportsOver("deadline");
        const settled = vi.fn();
        const call = failure(client.never({ timeoutMs })).finally(settled);
        await vi.advanceTimersByTimeAsync(timeoutMs - 1);
        expect(settled).not.toHaveBeenCalled();
        await vi.advanceTimersByTimeAsync(1);
        expect(settled).toHaveBeenCalled();
        expect((await call).code).toBe("deadline_exceeded");
      },
    );

    it("ends every call of a moment at once, however long they took to make", async () => {
      const client = await reportsOver("moment");
      const calls: Promise<RpcError>[] = [];
      for (let made = 0; made < 20; made++) {
        await client.notify(made);
        calls.push(failure(client.never({ timeoutMs: 1_000 })));
      }
      vi.advanceTimersByTime(1_000);
      for (const { code } of await Promise.all(calls)) expect(code).toBe("deadline_exceeded");
    });

    it("ends the deadline of a call when the time is advanced at once by far more", async () => {
      const client = await reportsOver("leap");
      const call = failure(client.never({ timeoutMs: 100 }));
      await settle();
      vi.advanceTimersByTime(3_600_000);
      expect((await call).code).toBe("deadline_exceeded");
      // Neither side took the other for dead meanwhile.
      expect(await client.notify(1)).toBe(2);
    });

    it("leaves deadlines alone when a test sets the date", async () => {
      const client = await reportsOver("date");
      const call = client.slow({ timeoutMs: 90_000 });
      await settle();
      vi.setSystemTime(new Date("2040-02-01"));
      await vi.advanceTimersByTimeAsync(60_000);
      expect(await call).toBe("made");
    });

    it("waits for a handler's own timer", async () => {
      const client = await reportsOver("slow");
      const call = client.slow({ timeoutMs: 120_000 });
      await vi.advanceTimersByTimeAsync(60_000);
      expect(await call).toBe("made");
    });

    it("retries after the pause in fake time", async () => {
      const client = await reportsOver("retry");
      const call = client.flaky({ timeoutMs: 60_000, retry: { attempts: 3, baseDelayMs: 1 } });
      await vi.advanceTimersByTimeAsync(4_999);
      expect(calls).toBe(1);
      // In steps: each attempt needs turns of the event loop, and one advance has few of them.
      const made: number[] = [];
      for (let step = 0; step < 20; step++) {
        await vi.advanceTimersByTimeAsync(1_000);
        made.push(calls);
      }
      expect(await call).toBe(3);
      // Five seconds lie between two attempts, in fake time.
      expect(made.lastIndexOf(2) - made.indexOf(2)).toBeGreaterThanOrEqual(3);
    });

    it("ends calls although all timers were cleared before", async () => {
      const client = await reportsOver("cleared");
      await client.notify(1);
      vi.clearAllTimers();
      const call = failure(client.never({ timeoutMs: 20_000 }));
      await vi.advanceTimersByTimeAsync(20_000);
      expect((await call).code).toBe("deadline_exceeded");
    });
  });

  it("ends calls of engines that were open before, and of real time afterwards", async () => {
    const client = await reportsOver("around");
    await client.notify(1);
    vi.useFakeTimers();
    const faked = failure(client.never({ timeoutMs: 30_000 }));
    await settle();
    vi.advanceTimersByTime(30_000);
    expect((await faked).code).toBe("deadline_exceeded");
    vi.useRealTimers();
    expect((await failure(client.never({ timeoutMs: 20 }))).code).toBe("deadline_exceeded");
    vi.useFakeTimers();
    const again = failure(client.never({ timeoutMs: 40 }));
    await vi.advanceTimersByTimeAsync(40);
    expect((await again).code).toBe("deadline_exceeded");
  });

  it("needs no faked clock: the timers are enough", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const client = await reportsOver("timers-only");
    const call = failure(client.never({ timeoutMs: 30_000 }));
    await settle();
    vi.advanceTimersByTime(30_000);
    expect((await call).code).toBe("deadline_exceeded");
  });
});
