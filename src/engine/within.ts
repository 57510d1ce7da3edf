import { systemClock } from "../call/clock.ts";
import { RpcError } from "../errors/rpc-error.ts";

/** `work`, or `unavailable` after `timeoutMs`, `failed` saying what has not happened; what comes of it later is dropped. */
export async function within<T>(timeoutMs: number, failed: string, work: Promise<T>): Promise<T> {
  let cancel = () => {};
  const late = new Promise<never>((_, reject) => {
    cancel = systemClock.timer(timeoutMs, () =>
      reject(
        new RpcError({
          code: "unavailable",
          message: `${failed} within ${timeoutMs} ms`,
          origin: "local",
        }),
      ),
    );
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    cancel();
  }
}
