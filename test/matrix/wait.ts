import { RpcError } from "cinnabar";
import { expect } from "vitest";

/** A promise and what settles it. */
export interface Deferred<T> {
  readonly promise: Promise<T>;
  resolve(value: T): void;
  reject(error: unknown): void;
}

export function deferred<T = void>(): Deferred<T> {
  let resolve!: (value: T) => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<T>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  return { promise, resolve, reject };
}

/** A bound for machines under load: a hang still ends. What takes a second elsewhere takes ten in a guest with devices. */
const mostMs = process.env.CINNABAR_TEST_VERBS === undefined ? 20_000 : 60_000;

/** Until the condition holds. */
export async function until(condition: () => boolean, what: string): Promise<void> {
  await expect.poll(condition, { timeout: mostMs, interval: 1, message: what }).toBe(true);
}

/** The RpcError a promise rejects with; anything else fails the test. */
export async function failure(promise: Promise<unknown>): Promise<RpcError> {
  const error = await promise.then(
    (value) => expect.fail(`expected an RpcError, got the value ${String(value)}`),
    (reason: unknown) => reason,
  );
  if (!(error instanceof RpcError)) throw error;
  return error;
}

/** Resolves when the signal fires, with its reason. */
export function fired(signal: AbortSignal): Promise<unknown> {
  if (signal.aborted) return Promise.resolve(signal.reason);
  return new Promise((resolve) => {
    signal.addEventListener("abort", () => resolve(signal.reason), { once: true });
  });
}

/** Until the condition holds, asked once a turn of the loop: for states that pass quickly. */
export async function untilTurn(condition: () => boolean, what: string): Promise<void> {
  const end = performance.now() + mostMs;
  while (!condition()) {
    if (performance.now() > end) expect.fail(`waited in vain: ${what}`);
    await new Promise(setImmediate);
  }
}

/** Keeps the thread busy, so that a timer is overdue when the loop goes on. */
export function blockFor(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}
