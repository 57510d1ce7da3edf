import { type Application, ApplicationError, type Component, type Running, startOrder } from "./component.ts";
import { type Configuration, configure, type Sources } from "./configuration.ts";

/** Options of `startApplication`. */
export interface StartOptions extends Sources {
  /** How long one component may take to start, in milliseconds. Default 60,000. */
  readonly startMs?: number | undefined;
  /** Gives up the start when it fires: what has started is stopped. Default: none. */
  readonly signal?: AbortSignal | undefined;
  /** Receives a line when a component has started or stopped, or could not. Default: nobody. */
  readonly log?: ((line: string) => void) | undefined;
}

/** An application that runs. */
export interface StartedApplication {
  /** The value of a component by its name. */
  readonly values: { readonly [name: string]: unknown };
  readonly configuration: Configuration;
  /**
   * Stops the components in reverse order, each after a drain. All of them share `graceMs`, in milliseconds, default
   * 10,000. Resolves to the failures; a second call gets the same promise.
   */
  stop(graceMs?: number): Promise<readonly Error[]>;
}

/** How long a component may take to free what it holds, once its time to drain is over. */
const stopMs = 5_000;

/**
 * Starts the components of an application in the order of their needs. If one fails, those that have started are
 * stopped.
 *
 * @throws ApplicationError for a component that is missing, a circle, or a wrong configuration, before anything starts;
 * for a component that does not start, with its error as `cause`.
 */
export async function startApplication(
  application: Application,
  options: StartOptions = {},
): Promise<StartedApplication> {
  const { startMs = 60_000, signal, log = () => {}, ...sources } = options;
  const order = startOrder(application);
  const configuration = await configure(application, order, sources);
  const values: Record<string, unknown> = Object.create(null);
  const running: { readonly name: string; readonly part: Running<unknown> }[] = [];

  let stopping: Promise<readonly Error[]> | undefined;
  const stop = (graceMs = 10_000): Promise<readonly Error[]> => {
    stopping ??= stopAll(running, graceMs, { log, hide: configuration.hide });
    return stopping;
  };
  for (const name of order) {
    const abort = new AbortController();
    const giveUp = () => abort.abort(signal?.reason);
    try {
      signal?.throwIfAborted();
      signal?.addEventListener("abort", giveUp, { once: true });
      const part = application.components[name] as Component;
      const needs = Object.fromEntries(Object.keys(part.needs ?? {}).map((each) => [each, values[each]]));
      const context = { config: configuration.values.get(name), needs, signal: abort.signal };
      const starting = Promise.resolve(part.start(context as never));
      const started = await within(starting, startMs, "it did not start", {
        signal: abort.signal,
        onLate: (late) => stopOne(late, 0),
      });
      running.push({ name, part: started });
      values[name] = started.value;
      log(`${name} has started`);
    } catch (error) {
      const cause: unknown = signal?.aborted === true ? signal.reason : error;
      abort.abort(cause);
      for (const failure of await stop()) log(failure.message);
      const why = configuration.hide(textOf(cause));
      throw new ApplicationError(`${application.name}: ${name} could not start: ${why}`, { cause });
    } finally {
      signal?.removeEventListener("abort", giveUp);
    }
  }
  return { values, configuration, stop };
}

async function stopAll(
  running: readonly { readonly name: string; readonly part: Running<unknown> }[],
  graceMs: number,
  { log, hide }: { readonly log: (line: string) => void; readonly hide: Configuration["hide"] },
): Promise<readonly Error[]> {
  const failures: Error[] = [];
  const endMs = performance.now() + graceMs;
  for (const { name, part } of running.toReversed()) {
    try {
      await stopOne(part, Math.max(1, endMs - performance.now()));
      log(`${name} has stopped`);
    } catch (cause) {
      failures.push(new ApplicationError(`${name} could not stop: ${hide(textOf(cause))}`, { cause }));
    }
  }
  return failures;
}

/** Both are tried: a drain that fails must not keep what the component holds. */
async function stopOne(part: Running<unknown>, graceMs: number): Promise<void> {
  let failure: { readonly error: unknown } | undefined;
  const note = (error: unknown) => {
    failure ??= { error };
  };
  if (graceMs > 0)
    await within(
      Promise.resolve().then(() => part.drain?.(graceMs)),
      graceMs + stopMs,
      "its drain has not ended",
    ).catch(note);
  await within(
    Promise.resolve().then(() => part.stop?.()),
    stopMs,
    "it did not stop",
  ).catch(note);
  if (failure !== undefined) throw failure.error;
}

/**
 * The result of `work`, or an error after `ms` or when the signal fires. `onLate` receives a result that comes
 * afterwards.
 */
async function within<T>(
  work: Promise<T>,
  ms: number,
  what: string,
  { signal, onLate }: { signal?: AbortSignal; onLate?: (result: T) => Promise<unknown> } = {},
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  let isLate = false;
  work.then((result) => (isLate ? onLate?.(result) : undefined)).catch(() => {});
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      isLate = true;
      reject(new ApplicationError(`${what} within ${Math.round(ms)} ms`));
    }, ms);
    signal?.addEventListener("abort", () => {
      isLate = true;
      reject(signal.reason);
    });
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
