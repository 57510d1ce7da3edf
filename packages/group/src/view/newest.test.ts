import { expect, it } from "vitest";
import { Newest } from "./newest.ts";

it("gives the value of now or the next one, and only the newest to who reads slowly", async () => {
  const newest = new Newest(1);
  const [now, next] = [newest.read("now"), newest.read("next")];
  expect(await now.next()).toEqual({ done: false, value: 1 });
  const waiting = next.next();
  newest.set(2);
  newest.set(3);
  expect(await waiting).toEqual({ done: false, value: 3 });
  expect(await now.next()).toEqual({ done: false, value: 3 });
});

it("ends after the newest value has been read, and keeps no reader", async () => {
  const newest = new Newest(1);
  const reader = newest.read("now");
  newest.end();
  newest.set(2);
  expect(await reader.next()).toEqual({ done: false, value: 1 });
  expect(await reader.next()).toEqual({ done: true, value: undefined });
  expect([newest.value, newest.readers]).toEqual([1, 0]);
});

it("throws the error that it ends with, once it waits or is asked", async () => {
  const newest = new Newest(1);
  const waiting = newest.read("next").next();
  newest.end(new Error("gone"));
  await expect(waiting).rejects.toThrow("gone");
  await expect(newest.read("next").next()).rejects.toThrow("gone");
  expect(newest.readers).toBe(0);
});

it("ends for a reader that returns while it waits, and by a signal", async () => {
  const newest = new Newest(1);
  const [returned, aborted] = [newest.read("next"), new AbortController()];
  const ended = [returned.next(), newest.read("next", aborted.signal).next()];
  await returned.return?.();
  aborted.abort();
  expect(await Promise.all(ended)).toEqual([
    { done: true, value: undefined },
    { done: true, value: undefined },
  ]);
  expect(await newest.read("now", aborted.signal).next()).toEqual({ done: true, value: undefined });
  expect(newest.readers).toBe(0);
});
