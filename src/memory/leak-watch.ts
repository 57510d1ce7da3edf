/** The part of a region's core that the leak watch needs. */
export interface LeakWatched {
  readonly disposed: boolean;
  readonly byteLength: number;
  /** Where it was exposed, for the warning. */
  readonly exposedAt: string;
  dispose(): void;
}

/** Places in the code that have had a warning. One warning each: a leak in a loop must not flood the log. */
const reported = new Set<string>();

/** The garbage collector reports lost regions here, at any later time. */
const watch = new FinalizationRegistry((core: LeakWatched) => {
  if (core.disposed) return;
  core.dispose();
  if (reported.has(core.exposedAt)) return;
  reported.add(core.exposedAt);
  process.emitWarning(
    `a region of ${core.byteLength} bytes was forgotten without being disposed; it was exposed ${core.exposedAt}. ` +
      "Call dispose() when no call needs it any more, or declare it with `using`.",
    "CinnabarLeakWarning",
  );
});

/**
 * Disposes the region and warns, once for each place in the code, when its user loses `region` without disposing it.
 */
export function watchForLeak(region: object, core: LeakWatched): void {
  watch.register(region, core, core);
}

/** The region was disposed by its user. */
export function unwatchForLeak(core: LeakWatched): void {
  watch.unregister(core);
}

/**
 * Where `callee` was called from: "at file:line:column". Takes 4 µs, because it reads one line only. The text is made
 * at once: a stack that is formatted later keeps alive the `this` of its functions, which may hold the region.
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
