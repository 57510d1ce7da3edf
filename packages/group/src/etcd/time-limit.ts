/**
 * Does work with a signal that aborts after a time, or together with one of others. All of them are held until the work
 * has ended: in Node 20 the garbage collector may take a timeout that only `AbortSignal.any` refers to, and then it never
 * fires.
 */
export async function withTimeLimit<T>(
  ms: number,
  others: readonly (AbortSignal | undefined)[],
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const limit = new AbortController();
  const timer = setTimeout(
    () => limit.abort(new DOMException(`not done within ${ms} ms`, "TimeoutError")),
    ms,
  );
  const links = others.map((signal) => signal && abortTogether(signal, limit));
  try {
    return await work(limit.signal);
  } finally {
    clearTimeout(timer);
    for (const unlink of links) unlink?.();
  }
}

/** Aborts a controller when a signal does, until the returned function is called. */
export function abortTogether(signal: AbortSignal, controller: AbortController): () => void {
  const onAbort = () => controller.abort(signal.reason);
  if (signal.aborted) onAbort();
  else signal.addEventListener("abort", onAbort, { once: true });
  return () => signal.removeEventListener("abort", onAbort);
}
