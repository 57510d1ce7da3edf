import { isImplementation } from "cinnabar/options";
import { type Engine, type EngineOptions, type Implementation, RpcError } from "cinnabar/standard";
import { faultOfRules, type LaneRules } from "./lane-security.ts";
import { within } from "./within.ts";

/** The argument of the function that a lane module exports. */
export interface LaneContext {
  /**
   * The number of the lane, from 0. `"dispatcher"` on the main thread, which serves clients that know no lanes.
   */
  readonly lane: number | "dispatcher";
  /** The number of lanes. */
  readonly lanes: number;
  /** The option `data` of `openLanes`. Each thread has its own copy. */
  readonly data: unknown;
}

/**
 * The services of one lane, and how to close what they use.
 *
 * @example
 * export default async ({ lane }: LaneContext): Promise<LaneServices> => {
 *   const log = createWriteStream(`lane-${lane}.log`);
 *   return {
 *     serve: [implement(Greeter, { greet: ({ name }) => ({ text: `Hello, ${name}` }) })],
 *     close: () => void log.end(),
 *   };
 * };
 */
export interface LaneServices {
  /**
   * The services, or a function that makes them of the lane's engine, before it listens. Each lane has an engine of its
   * own: its `health` is that of the lane, and clients send no calls to a lane that does not serve. The lane closes it.
   */
  readonly serve: NonNullable<EngineOptions["serve"]>;
  /**
   * The functions of the option `security` that decide about peers and calls; `openLanes` must have the option then.
   * Default: no functions, so that every peer that is let in may call every method.
   */
  readonly security?: LaneRules;
  /**
   * Closes what the module holds. It is called after the engine of the lane was closed, and awaited for at most a
   * second. It is not called when a thread exits unexpectedly.
   */
  close?(): void | Promise<void>;
}

/**
 * What a lane module exports, as its default or as `serve`: services, or a function that makes the services of one
 * lane.
 *
 * @example
 * export default ({ lane }: LaneContext) =>
 *   implement(Greeter, { greet: ({ name }) => ({ text: `Hello, ${name}, from lane ${lane}` }) });
 */
export type LaneModule =
  | Implementation
  | readonly Implementation[]
  | LaneServices
  | ((
      context: LaneContext,
    ) =>
      | Implementation
      | readonly Implementation[]
      | LaneServices
      | Promise<Implementation | readonly Implementation[] | LaneServices>);

/**
 * Loads a lane's module in this thread. `isSecured`: `openLanes` has the option `security`.
 *
 * @throws RpcError `failed_precondition` that names the module: it cannot be imported, throws, gives no services, or
 * gives rules that would never be asked. The cause is its error.
 */
export async function loadServices(
  module: string,
  context: LaneContext,
  isSecured: boolean,
): Promise<LaneServices> {
  const where = `the module ${module} of ${context.lane === "dispatcher" ? "the dispatcher" : `lane ${context.lane}`}`;
  let exported: { readonly default?: unknown; readonly serve?: unknown; readonly security?: unknown };
  try {
    // The user's file stays a file: bundlers cannot know it.
    exported = await import(/* webpackIgnore: true */ /* @vite-ignore */ module);
  } catch (cause) {
    throw failed(`${where} could not be loaded: ${text(cause)}`, cause);
  }
  const given = exported.default ?? exported.serve;
  if (given === undefined) throw failed(`${where} has neither a default export nor one named "serve"`);
  // Names of a CommonJS module's one object are exports too.
  if (
    exported.security !== (given as Partial<LaneServices> | null)?.security &&
    exported.security !== undefined
  )
    throw failed(`${where} exports "security" by itself: give it with the services, as { serve, security }`);
  let made: unknown;
  try {
    made = typeof given === "function" ? await given(context) : await given;
  } catch (cause) {
    throw failed(`${where} failed to make its services: ${text(cause)}`, cause);
  }
  const services = servicesOf(where, made);
  if (services !== undefined) {
    assertRules(where, services.security, isSecured);
    return services;
  }
  throw failed(
    `${where} must give what implement() returns, an array of it, or { serve, close? }; it gave ${describe(made)}`,
  );
}

/** How long a module may take to end what it holds. */
const closeMs = 1000;

/**
 * Lets a module close what it holds. An error of it is printed: it has no remedy, and the rest must close.
 */
export async function closeServices(services: LaneServices, where: string): Promise<void> {
  try {
    // Called inside, to catch synchronous errors.
    const closed = (async () => services.close?.())();
    await within(closeMs, "it has not ended", closed);
  } catch (error) {
    console.error(`cinnabar: ${where}: the module's close() failed:`, error);
  }
}

/** Rules that are not asked refuse no peer, so they are an error. */
function assertRules(where: string, rules: unknown, isSecured: boolean): void {
  if (rules === undefined) return;
  const fault = faultOfRules(rules);
  if (fault !== "") throw failed(`${where} gives "security" that cannot be used: ${fault}`);
  if (!isSecured)
    throw failed(`${where} gives "security", and openLanes has no such option: give it, {} for shm alone`);
}

function servicesOf(where: string, made: unknown): LaneServices | undefined {
  if (isImplementation(made)) return { serve: [made] };
  if (Array.isArray(made)) return isServed(made) ? { serve: made } : undefined;
  if (typeof made !== "object" || made === null) return undefined;
  const { serve: given, close, security } = made as Partial<LaneServices>;
  const serve = typeof given === "function" ? servesOf(where, given.bind(made)) : given;
  if (serve === undefined || !(typeof serve === "function" || isServed(serve))) return undefined;
  const services = security === undefined ? { serve } : { serve, security };
  if (close === undefined) return services;
  return typeof close === "function" ? { ...services, close: () => close.call(made) } : undefined;
}

const isServed = (made: unknown): made is readonly Implementation[] =>
  Array.isArray(made) && made.every(isImplementation);

/** The function that makes the services of an engine, with errors that name the module. */
function servesOf(
  where: string,
  serve: (engine: Engine) => unknown,
): (engine: Engine) => Promise<readonly Implementation[]> {
  return async (engine) => {
    let made: unknown;
    try {
      made = await serve(engine);
    } catch (cause) {
      throw failed(`${where} failed to make its services: ${text(cause)}`, cause);
    }
    if (isServed(made)) return made;
    throw failed(
      `the function serve of ${where} must give an array of what implement() returns; it gave ${describe(made)}`,
    );
  };
}

function failed(message: string, cause?: unknown): RpcError {
  const why = cause === undefined ? {} : { cause };
  return new RpcError({ code: "failed_precondition", message, ...why });
}

function text(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function describe(value: unknown): string {
  if (Array.isArray(value)) return "an array that holds something else";
  return value === null ? "null" : typeof value;
}
