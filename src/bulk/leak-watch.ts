import type { RegionCore } from "./region-core.ts";

/** Places that a warning has named: one for each is enough, a leak in a loop would drown everything else. */
const reported = new Set<string>();

/** Told of regions whose last reference is gone, by the garbage collector, sooner or later. */
const watch = new FinalizationRegistry((core: RegionCore) => {
  if (core.disposed) return;
  core.dispose();
  if (reported.has(core.exposedAt)) return;
  reported.add(core.exposedAt);
  process.emitWarning(
    `a region of ${core.byteLength} bytes was forgotten without being disposed; it was exposed ${core.exposedAt}. ` +
      "Dispose it when it is no longer lent, or let `using` do so.",
    "CinnabarLeakWarning",
  );
});

/** Disposes the region and warns, once for each place in the code, when its user loses `handle` without having disposed it. */
export function watchForLeak(handle: object, core: RegionCore): void {
  watch.register(handle, core, core);
}

/** The region has been disposed as it should be. */
export function unwatchForLeak(core: RegionCore): void {
  watch.unregister(core);
}

/**
 * Where `callee` was called from: "at file:line:column". It takes 4 µs, one line being all that is looked at. As text at once, because a stack that
 * is kept to be formatted later keeps alive what its functions have as `this`, which may well be what holds the region.
 */
export function callerOf(callee: (...args: never[]) => unknown): string {
  const { stackTraceLimit } = Error;
  const trace: { stack?: string } = {};
  try {
    Error.stackTraceLimit = 1;
    Error.captureStackTrace(trace, callee);
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
  return trace.stack?.split("\n    ")[1] ?? "somewhere";
}
