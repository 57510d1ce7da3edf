import { RpcError } from "cinnabar/standard";

/**
 * Resolves or rejects as `work` does, if it settles within `timeoutMs`. A later result is dropped.
 *
 * @throws RpcError `unavailable` after `timeoutMs`. `failed` begins its message, as in "the lane has not answered".
 */
export async function within<T>(timeoutMs: number, failed: string, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const error = () => new RpcError({ code: "unavailable", message: `${failed} within ${timeoutMs} ms` });
    timer = setTimeout(() => reject(error()), timeoutMs);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
