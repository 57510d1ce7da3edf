import { constants } from "node:os";
import { assertOptions } from "../contract/check.ts";
import { assertGraceMs, type DrainOptions, type DrainReport, defaultGraceMs } from "./drain.ts";

/** What signals close: an engine, or lanes. */
export interface Closable {
  readonly state: "open" | "draining" | "closed";
  /** `unanswered`: parts that were ended without a word of what they had in flight. */
  drain(options: DrainOptions): Promise<DrainReport & { readonly unanswered?: readonly unknown[] }>;
  close(): Promise<void>;
}

/** What `closeOnSignals` takes. */
export interface CloseOnSignalsOptions {
  /** Default: SIGTERM and SIGINT. */
  readonly signals?: readonly NodeJS.Signals[];
  /** How long what is in flight may go on, in milliseconds. Default 10,000. */
  readonly graceMs?: number;
  /** Told of each engine's drain when it has ended. */
  readonly onDrained?: (report: DrainReport) => void;
}

/**
 * For services: the first of `signals` drains the engines (or lanes, see `openLanes`), then the process may end by itself, with status 0 when everything in flight finished and 1 when calls
 * were aborted (a `process.exitCode` that is set stays). Nothing is forced: whatever else keeps the process alive is its owner's to end. The second
 * signal closes at once and then ends the process by that signal, as if nobody had listened for it; so does any signal once the engines are closed.
 *
 * Returns what takes the listeners away; they hold no process alive.
 *
 * @throws TypeError or RangeError for what are no engines, or bad options.
 */
export function closeOnSignals(
  engines: Closable | readonly Closable[],
  options: CloseOnSignalsOptions = {},
): Disposable {
  assertOptions("closeOnSignals", options, ["signals", "graceMs", "onDrained"]);
  const { signals = ["SIGTERM", "SIGINT"], graceMs = defaultGraceMs, onDrained } = options;
  assertGraceMs("closeOnSignals", graceMs);
  if (!Array.isArray(signals) || !signals.every((signal) => signal in constants.signals))
    throw new TypeError(
      `closeOnSignals: signals must be an array of names of signals, it is ${String(signals)}`,
    );
  if (onDrained !== undefined && typeof onDrained !== "function")
    throw new TypeError("closeOnSignals: onDrained must be a function");
  const all: readonly Closable[] = Array.isArray(engines) ? engines : [engines as Closable];
  if (!all.every(isClosable))
    throw new TypeError(
      "closeOnSignals: the first argument must be an engine, what openLanes() gives, or an array of these",
    );
  let draining = false;

  const dispose = (): void => {
    for (const signal of signals) process.off(signal, onSignal);
  };
  const drain = async (): Promise<void> => {
    const reports = await Promise.all(all.map((engine) => engine.drain({ graceMs })));
    dispose();
    const isCut = reports.some(({ aborted, unanswered = [] }) => aborted.length + unanswered.length > 0);
    if (isCut) process.exitCode ??= 1;
    for (const report of reports) onDrained?.(report);
  };
  const endBy = async (signal: NodeJS.Signals): Promise<void> => {
    // Before anything else: the next signal must find nobody who listens.
    dispose();
    await Promise.all(all.map((engine) => engine.close()));
    process.kill(process.pid, signal);
  };
  const onSignal = (signal: NodeJS.Signals): void => {
    if (draining || all.every((engine) => engine.state === "closed")) void endBy(signal);
    else {
      draining = true;
      void drain();
    }
  };
  for (const signal of signals) process.on(signal, onSignal);
  return { [Symbol.dispose]: dispose };
}

function isClosable(value: unknown): value is Closable {
  if (typeof value !== "object" || value === null) return false;
  const { drain, close, state } = value as Partial<Closable>;
  return typeof drain === "function" && typeof close === "function" && typeof state === "string";
}
