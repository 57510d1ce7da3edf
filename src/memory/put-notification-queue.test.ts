import { describe, expect, it } from "vitest";
import { maxPutNotifications, PutNotificationQueue } from "./put-notification.ts";
import { RegionCore } from "./region-core.ts";

const notification = (n: number) => ({ n, bytes: 8 });
const owner = { onRegionReleased() {} };
const core = () => new RegionCore(owner, [new Uint8Array(64)], "write");

describe("the put notifications of a region", () => {
  it("come in order, those that came before their reader first", async () => {
    const queue = new PutNotificationQueue();
    queue.push(notification(1));
    const reader = queue.read();
    expect(await reader.next()).toEqual({ done: false, value: notification(1) });
    const [second, third] = [reader.next(), reader.next()];
    queue.push(notification(2));
    queue.push(notification(3));
    expect([await second, await third].map(({ value }) => value?.n)).toEqual([2, 3]);
  });

  it("are refused when too many wait, and when they are over", () => {
    const queue = new PutNotificationQueue();
    for (let n = 0; n < maxPutNotifications; n++) expect(queue.push(notification(n))).toBe(true);
    expect(queue.push(notification(maxPutNotifications))).toBe(false);
    queue.close();
    expect(queue.push(notification(0))).toBe(false);
  });

  it("have one reader at a time, and those it leaves are the next one's", async () => {
    const queue = new PutNotificationQueue();
    for (let n = 0; n < 3; n++) queue.push(notification(n));
    const read: number[] = [];
    for await (const { n } of queue.read()) {
      expect(() => queue.read()).toThrow("failed_precondition");
      read.push(n);
      if (n === 1) break;
    }
    for await (const { n } of queue.read()) {
      read.push(n);
      queue.close();
    }
    expect(read).toEqual([0, 1, 2]);
  });

  it("end for a reader that waits, and for one that has left", async () => {
    const queue = new PutNotificationQueue();
    const reader = queue.read();
    const waiting = reader.next();
    await reader.return?.();
    expect(await waiting).toEqual({ done: true, value: undefined });
    expect(await reader.next()).toEqual({ done: true, value: undefined });
    const next = queue.read().next();
    queue.close();
    expect(await next).toEqual({ done: true, value: undefined });
  });

  it("tell their reader where some were lost, after what came before and before what comes later", async () => {
    const queue = new PutNotificationQueue();
    for (let n = 0; n < maxPutNotifications; n++) queue.push(notification(n));
    queue.lose();
    queue.lose();
    const reader = queue.read();
    expect((await reader.next()).value?.n).toBe(0);
    expect((await reader.next()).value?.n).toBe(1);
    expect(queue.push(notification(5000))).toBe(true);
    for (let n = 2; n < maxPutNotifications; n++) expect((await reader.next()).value?.n).toBe(n);
    await expect(reader.next()).rejects.toMatchObject({
      code: "resource_exhausted",
      message: expect.stringContaining("put notifications were lost"),
    });
    expect((await reader.next()).done).toBe(true);
    const next = queue.read();
    expect((await next.next()).value?.n).toBe(5000);
    const [waiting, other] = [next.next(), next.next()];
    queue.lose();
    await expect(waiting).rejects.toMatchObject({ code: "resource_exhausted" });
    expect((await other).done).toBe(true);
    queue.close();
    queue.lose();
    expect(await queue.read().next()).toEqual({ done: true, value: undefined });
  });

  it("of a slice go to the whole unless somebody reads the slice's", async () => {
    const whole = core();
    const slice = whole.slice(8, 8);
    slice.notify(notification(1));
    const ofSlice = slice.notifications();
    slice.notify(notification(2));
    expect((await ofSlice.next()).value?.n).toBe(2);
    expect((await whole.notifications().next()).value?.n).toBe(1);
    const last = ofSlice.next();
    whole.dispose();
    expect((await last).done).toBe(true);
    expect(slice.notify(notification(3))).toBe(false);
    expect(() => slice.notifications()).toThrow("failed_precondition");
  });
});
