/**
 * When this process should end: on SIGTERM, and on SIGINT if a person runs it by hand. Under the demo's parent the
 * process leaves SIGINT to the parent. A terminal sends Ctrl-C to all three processes at once, and only the parent
 * knows the order. The end of the parent also ends the child.
 */
export function stopSignal(): AbortSignal {
  const stop = new AbortController();
  const end = (why: string) => stop.abort(new Error(why));
  process.on("SIGTERM", () => end("SIGTERM"));
  if (process.send === undefined) {
    process.on("SIGINT", () => end("SIGINT"));
  } else {
    process.on("SIGINT", () => {});
    process.on("disconnect", () => end("the parent process is gone"));
    process.channel?.unref(); // listening for that is no reason to stay
  }
  return stop.signal;
}

export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/** A sentence for a person, without the stack they cannot use. */
export function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
