import { EventEmitter } from "node:events";
import { expect, it } from "vitest";
import { DetectorThread, MainThreadWatch, type Notice, type Request } from "./detector-thread.ts";

/** A thread with notices and an end that the test decides. */
class FakeWorker extends EventEmitter {
  readonly requests: Request[] = [];
  /** Whether it keeps the process alive, as a new thread does. */
  keepsAlive = true;

  ref(): void {
    this.keepsAlive = true;
  }

  unref(): void {
    this.keepsAlive = false;
  }

  postMessage(request: Request): void {
    this.requests.push(request);
  }

  says(notice: Notice): void {
    this.emit("message", notice);
  }
}

const stats = { sendErrors: 3 } as never;

it("is not ready where it refuses, throws, or ends without a word", async () => {
  const [refuses, throws, ends] = [new FakeWorker(), new FakeWorker(), new FakeWorker()];
  const ready = [refuses, throws, ends].map((worker) => DetectorThread.ready(worker));
  refuses.says({ kind: "failed", message: "EADDRINUSE" });
  throws.emit("error", new Error("no module"));
  ends.emit("exit", 1);
  await expect(ready[0]).rejects.toThrow("failure detector: it cannot start: EADDRINUSE");
  await expect(ready[1]).rejects.toThrow("no module");
  await expect(ready[2]).rejects.toThrow("its thread ended before it was ready");
});

it("answers, and nothing is kept of those who were answered", async () => {
  const worker = new FakeWorker();
  const told: Notice[] = [];
  const thread = new DetectorThread(worker, (notice) => told.push(notice));
  const listeners = () => worker.eventNames().map((name) => worker.listenerCount(name));
  const before = listeners();
  for (let i = 0; i < 20; i++) {
    const asked = thread.ask({ kind: "stats" }, "stats");
    worker.says({ kind: "stats", stats });
    expect((await asked).stats).toBe(stats);
  }
  expect([listeners(), worker.requests.length, told.length]).toEqual([before, 20, 20]);
});

it("leaves nobody waiting when it ends, and says that it is closed from then on", async () => {
  const worker = new FakeWorker();
  const thread = new DetectorThread(worker, () => {});
  const waiting = [thread.ask({ kind: "stats" }, "stats"), thread.ask({ kind: "leave" }, "left")];
  const closing = thread.close();
  worker.emit("exit", 0);
  for (const promise of [...waiting, thread.ask({ kind: "stats" }, "stats")])
    await expect(promise).rejects.toThrow("failure detector: it is closed");
  await closing;
  await thread.close();
});

it("keeps the process alive while somebody waits for it, and at no other time", async () => {
  const worker = new FakeWorker();
  const thread = new DetectorThread(worker, () => {});
  expect(worker.keepsAlive).toBe(false);
  const asked = [thread.ask({ kind: "stats" }, "stats"), thread.ask({ kind: "leave" }, "left")];
  worker.says({ kind: "stats", stats });
  expect(worker.keepsAlive).toBe(true);
  worker.says({ kind: "left" });
  expect(worker.keepsAlive).toBe(false);
  const closing = thread.close();
  worker.says({ kind: "stats", stats });
  expect(worker.keepsAlive).toBe(true);
  worker.emit("exit", 0);
  await Promise.all([...asked, closing]);
});

it("does not hide an error of the thread", () => {
  const worker = new FakeWorker();
  new DetectorThread(worker, () => {});
  expect(() => worker.emit("error", new Error("a fault"))).toThrow("a fault");
});

it("a main thread that does not answer in time stands still, until it answers", () => {
  const asked: number[] = [];
  const watch = new MainThreadWatch(1000, (number) => asked.push(number));
  expect(watch.check(0)).toBe(false);
  expect([watch.check(1000), watch.check(1001), asked]).toEqual([false, true, [1]]);
  watch.onAnswer(1);
  expect([watch.check(5000), watch.check(5900), asked]).toEqual([false, false, [1, 2]]);
});
