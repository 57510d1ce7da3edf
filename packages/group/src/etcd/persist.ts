import { setTimeout as pause } from "node:timers/promises";
import { RpcError } from "cinnabar/standard";

const maxPauseMs = 5_000;

/**
 * Repeats an attempt while etcd cannot be reached, with growing pauses.
 *
 * @throws what the attempt throws, if it is not `unavailable`; when `signal` aborts, the error of the last attempt that
 * it did not cut short
 */
export async function persist<T>(attempt: () => Promise<T>, signal: AbortSignal): Promise<T> {
  let last: unknown;
  for (let failures = 0; ; failures += 1)
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof RpcError && error.code === "unavailable")) throw error;
      if (signal.aborted) throw last ?? error;
      last = error;
      const ms = Math.min(maxPauseMs, 50 * 2 ** failures) * (0.5 + Math.random() / 2);
      await pause(ms, undefined, { signal }).catch(() => {
        throw error;
      });
    }
}
