import { RpcError } from "../errors/rpc-error.ts";
import { realClock } from "./clock.ts";

/**
 * Resolves or rejects as `work` does, if it settles within `timeoutMs`. A later result is dropped.
 * @throws RpcError `unavailable` after `timeoutMs`. `failed` begins its message, as in "the lane did not answer".
 */
export async function withTimeout<T>(timeoutMs: number, failed: string, work: Promise<T>): Promise<T> {
  let cancel = () => {};
  const late = new Promise<never>((_, reject) => {
    cancel = realClock.timer(timeoutMs, () =>
      reject(new RpcError({ code: "unavailable", message: `${failed} within ${Math.round(timeoutMs)} ms` })),
    );
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    cancel();
  }
}
