import { expect, it, onTestFinished, vi } from "vitest";
import { realClock } from "../base/time/clock.ts";
import { RegionHandle } from "../memory/region-handle.ts";
import { handleTokenBytes } from "../wire/handle-descriptor.ts";
import { BorrowConnections } from "./borrow-connections.ts";

const urls = ["tcp://127.0.0.1:7001", "tcp://127.0.0.1:7002"];

/**
 * Borrows by a connect that takes all of its time but `leaveMs`, and fails. Nothing else takes time. Returns the
 * borrower's outcome, and the addresses that were tried.
 */
async function borrowFrom(timeoutMs: number, leaveMs: number): Promise<{ message: string; tried: string[] }> {
  let nowMs = 0;
  const clock = vi.spyOn(realClock, "now").mockImplementation(() => nowMs);
  onTestFinished(() => clock.mockRestore());
  const tried: string[] = [];
  const owners = new BorrowConnections([], async (url, givenMs) => {
    tried.push(url);
    nowMs += givenMs - leaveMs;
    throw new Error(`${url}: nobody there`);
  });
  const token = new Uint8Array(handleTokenBytes);
  const handle = new RegionHandle({ urls, incarnation: 1n, token, bytes: 8, access: 1, leaseMs: 60_000 });
  const { message } = await owners.reach(handle, timeoutMs, undefined).then(
    () => expect.fail("nobody was there"),
    (error: Error) => error,
  );
  return { message, tried };
}

it("gives all addresses of an owner no more time than the borrower does, and takes less than a millisecond for none", async () => {
  const { message, tried } = await borrowFrom(20, 0.5);
  expect(tried).toEqual(urls.slice(0, 1));
  expect(message).toContain(`${urls[1]}: there was no time left to try it`);
});

it("tries the next address of an owner in the time that the first has left", async () => {
  const { message, tried } = await borrowFrom(60_000, 60_000);
  expect(tried).toEqual(urls);
  for (const url of urls) expect(message).toContain(`${url}: nobody there`);
});
