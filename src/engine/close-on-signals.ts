import { constants } from "node:os";
import { callback, checkedBy, type FieldsOf, fail, resolveOptions } from "../base/options/options.ts";
import { type DrainOptions, type DrainReport, drainFields } from "./drain.ts";

/** An engine, or the result of `openLanes`. */
export interface Closable {
  readonly state: "open" | "draining" | "closed";
  /** `unanswered`: parts that were terminated before they could report their calls in flight. */
  drain(options: DrainOptions): Promise<DrainReport & { readonly unanswered?: readonly unknown[] }>;
  close(): Promise<void>;
}

/** The options of `closeOnSignals`. */
export interface CloseOnSignalsOptions {
  /** The signals to listen to. Default: SIGTERM and SIGINT. */
  readonly signals?: readonly NodeJS.Signals[] | undefined;
  /** How long calls in flight may go on, in milliseconds. Default 10,000. */
  readonly graceMs?: number | undefined;
  /** Receives the report of each engine's drain. */
  readonly onDrained?: ((report: DrainReport) => void) | undefined;
}

const closeFields = {
  ...drainFields,
  signals: checkedBy(signalNames, ["SIGTERM", "SIGINT"]),
  onDrained: callback<(report: DrainReport) => void>(),
} satisfies FieldsOf<CloseOnSignalsOptions>;

function signalNames(where: string, name: string, value: unknown): readonly NodeJS.Signals[] {
  if (Array.isArray(value) && value.every((signal) => signal in constants.signals)) return value;
  return fail(TypeError, where, name, "an array of names of signals", value);
}

/**
 * Closes a service on signals. The first signal drains the engines, and then the process may end by itself: with status
 * 0 when every call in flight finished, with 1 when calls were aborted. A `process.exitCode` that is set stays. The
 * exit is not forced: the program must end everything else that keeps the process alive.
 *
 * The second signal closes the engines at once, and then ends the process by that signal, as if it had no listener. So
 * does any signal after the engines are closed.
 *
 * Returns an object that removes the listeners when disposed. The listeners do not keep the process alive.
 *
 * @example
 * const engine = await Engine.open({ listen: "tcp://0.0.0.0:7400", serve: [files] });
 * closeOnSignals(engine, { graceMs: 5000 });
 *
 * @throws TypeError or RangeError for anything but engines and lanes, and for bad options.
 */
export function closeOnSignals(
  engines: Closable | readonly Closable[],
  options: CloseOnSignalsOptions = {},
): Disposable {
  const { signals, graceMs, onDrained } = resolveOptions("closeOnSignals", options, closeFields);
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
    // First of all, so that the next signal finds no listener.
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
