import {
  anything,
  callback,
  checkedBy,
  type Field,
  type FieldsOf,
  fail,
  group,
  integer,
  memoryShare,
  milliseconds,
  number,
  oneOf,
  type Resolved,
  required,
  resolveOptions,
  shown,
} from "cinnabar/options";
import type { EngineOptions } from "cinnabar/standard";
import { laneUrl, portOf } from "./addresses.ts";
import { LaneSecurity, type LaneSecurityOptions } from "./lane-security.ts";
import { mostLanes } from "./lanes-service.ts";

/** The options of an engine that a structured clone can carry to a thread. `Engine.open` checks their values. */
const engineFields = {
  heartbeatMs: anything(),
  keepaliveMs: anything(),
  maxStallMs: anything(),
  connectTimeoutMs: anything(),
  slowCallMs: anything(),
  measureLatency: anything(),
  limits: anything(),
  admission: anything(),
} satisfies Partial<Record<keyof EngineOptions, Field<unknown>>>;

/** The options that apply to the engine of the dispatcher and of every lane. */
export type LaneEngineOptions = Pick<EngineOptions, keyof typeof engineFields>;

/** The unexpected exit of a lane's thread, or a failed attempt to start its next thread. */
export interface LaneDeath {
  readonly lane: number;
  /** The exit code of the thread; 1 if no thread could be started. */
  readonly exitCode: number;
  /** What the thread threw, or why it did not start to serve. Undefined if it called `process.exit`. */
  readonly error: Error | undefined;
  /** How long the thread served, in milliseconds; 0 if it never served. */
  readonly servedMs: number;
  /** How many threads of this lane have exited unexpectedly, with this one. */
  readonly deaths: number;
  /** The pause before the next thread starts, in milliseconds. */
  readonly replacedInMs: number;
}

/** How soon the next thread of a lane starts after an unexpected exit. */
export interface RestartOptions {
  /**
   * The first pause, in milliseconds. It doubles with each early exit. The first exit of a lane causes no pause.
   * Default 100.
   */
  readonly baseDelayMs?: number | undefined;
  /**
   * The longest pause, in milliseconds. After a thread that served this long the next one starts at once. Default 5000.
   */
  readonly maxDelayMs?: number | undefined;
}

/**
 * The options of `openLanes`, with the engine options that can be sent to a thread. `limits` and `admission` apply to
 * each lane by itself. The default of `limits.memoryBytes` is that of an engine, divided by the lanes and the dispatcher.
 */
export interface LanesOptions extends LaneEngineOptions {
  /**
   * One or several published URLs: `tcp://host:port`, `verbs://host:port`, `net://host:port`, `shm://name` or `net+unix:///path`. Each lane also has an
   * address of its own for each of them.
   */
  readonly listen: string | readonly string[];
  /**
   * The number of lanes, 1 to 256. Default: the number of processors that the process may use.
   */
  readonly lanes?: number | undefined;
  /**
   * For tcp, verbs and net: lane n listens at port `firstLanePort` + n. Set it if a firewall must know the ports. Default:
   * free ports.
   */
  readonly firstLanePort?: number | undefined;
  /**
   * As of `Engine.open`: certificates or a pre-shared key, for the dispatcher and every lane. The module gives the
   * functions that decide (`identify`, `allow`, `authorize`, `psk.lookup`), as `{ serve, security: { allow } }`.
   * Default: no security.
   */
  readonly security?: LaneSecurityOptions | undefined;
  /** Passed to the module in each thread, as a structured clone. Default: undefined. */
  readonly data?: unknown | undefined;
  /**
   * What the dispatcher serves at the published address, to clients that connect by `engine.connect`. `serve`: the services of
   * the module, on the main thread. `refer`: nothing; with `security` it loads the module all the same, for its
   * functions. Default `serve`.
   */
  readonly dispatcher?: "serve" | "refer" | undefined;
  /**
   * Memory limits of each lane's thread, as in `node:worker_threads`. A thread that exceeds them exits, and the next
   * one starts. Default: no limits.
   */
  readonly resourceLimits?:
    | {
        readonly maxOldGenerationSizeMb?: number | undefined;
        readonly maxYoungGenerationSizeMb?: number | undefined;
        readonly codeRangeSizeMb?: number | undefined;
        readonly stackSizeMb?: number | undefined;
      }
    | undefined;
  /** How soon the next thread of a lane starts after an unexpected exit. */
  readonly restart?: RestartOptions | undefined;
  /** Called when a lane's thread exits unexpectedly. Default: prints a message with `console.error`. */
  readonly onLaneDied?: ((death: LaneDeath) => void) | undefined;
  /** How long a lane may take to load the module and to listen, in milliseconds. Default 30,000. */
  readonly startTimeoutMs?: number | undefined;
}

/** Node takes any number; more than a pebibyte is a mistake. */
const maxMebibytes = 2 ** 30;

const lanesFields = {
  ...engineFields,
  listen: required(
    checkedBy((where, name, value): readonly string[] => {
      const urls: unknown[] = [value].flat();
      if (urls.length > 0 && urls.every((url) => typeof url === "string")) return urls;
      return fail(TypeError, where, name, "a URL or an array of at least one URL", value);
    }),
  ),
  lanes: integer(1, mostLanes),
  firstLanePort: integer(1, 65_535),
  security: checkedBy((_where, _name, value) => new LaneSecurity(value as LaneSecurityOptions)),
  // Threads that start later get the same data, even if the caller has changed its object.
  data: checkedBy((_where, _name, value): unknown => structuredClone(value)),
  dispatcher: oneOf(["serve", "refer"], "serve"),
  resourceLimits: group({
    maxOldGenerationSizeMb: number(0, maxMebibytes),
    maxYoungGenerationSizeMb: number(0, maxMebibytes),
    codeRangeSizeMb: number(0, maxMebibytes),
    stackSizeMb: number(0, maxMebibytes),
  }),
  restart: group({
    baseDelayMs: milliseconds({ fallback: 100 }),
    maxDelayMs: milliseconds({ fallback: 5000 }),
  } satisfies FieldsOf<RestartOptions>),
  onLaneDied: callback<(death: LaneDeath) => void>(printDeath),
  startTimeoutMs: milliseconds({ fallback: 30_000 }),
} satisfies FieldsOf<LanesOptions>;

/** The options with the defaults. */
export interface ResolvedLanesOptions
  extends Omit<Resolved<typeof lanesFields>, keyof LaneEngineOptions | "resourceLimits"> {
  readonly module: string;
  readonly lanes: number;
  readonly resourceLimits: NonNullable<LanesOptions["resourceLimits"]>;
  readonly engine: LaneEngineOptions;
}

/**
 * @throws TypeError for an unknown option or a value of the wrong kind; RangeError for one out of bounds. Both name
 * it. DataCloneError for data that cannot be cloned.
 */
export function resolveLanesOptions(
  module: URL | string,
  options: LanesOptions,
  processors: number,
): ResolvedLanesOptions {
  const {
    lanes = Math.min(processors, mostLanes),
    firstLanePort,
    resourceLimits,
    ...resolved
  } = resolveOptions("openLanes", options, lanesFields);
  if (firstLanePort !== undefined) {
    integer(1, 65_536 - lanes).resolve("openLanes", "firstLanePort", firstLanePort);
    assertNoClash(resolved.listen, lanes, firstLanePort);
  }
  // The last has the longest name.
  for (const url of resolved.listen) laneUrl(url, lanes - 1, firstLanePort);
  return {
    ...resolved,
    module: moduleOf(module),
    lanes,
    firstLanePort,
    resourceLimits: withoutUndefined(resourceLimits),
    engine: Object.fromEntries(
      Object.keys(engineFields).flatMap((name) => {
        const value = options[name as keyof LaneEngineOptions];
        return value === undefined ? [] : [[name, value]];
      }),
    ),
  };
}

/**
 * The options of one of `engines` engines in a process. They divide the memory of the process, unless `memoryBytes` is
 * given. It is called in the thread of the engine, which has a heap of its own.
 */
export function dividedMemory(options: LaneEngineOptions, engines: number): LaneEngineOptions {
  const { limits } = options;
  const memoryBytes = limits?.memoryBytes ?? memoryShare(engines);
  return { ...options, limits: { ...limits, memoryBytes } };
}

function printDeath({ lane, exitCode, error, replacedInMs }: LaneDeath): void {
  const what = `cinnabar: lane ${lane} exited unexpectedly (exit code ${exitCode}), its next thread starts in ${replacedInMs} ms`;
  if (error === undefined) console.error(what);
  else console.error(`${what}:`, error);
}

function withoutUndefined<T extends object>(options: T): NonNullable<LanesOptions["resourceLimits"]> {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

/** Only a URL names the same file everywhere. A path would be relative to this file. */
function moduleOf(module: URL | string): string {
  const href = module instanceof URL ? module.href : module;
  if (typeof href === "string" && URL.canParse(href)) return href;
  throw new TypeError(
    `openLanes: the module must be a URL, as new URL("./service.js", import.meta.url), it is ${shown(module)}`,
  );
}

function assertNoClash(urls: readonly string[], lanes: number, firstLanePort: number): void {
  for (const url of urls) {
    const port = portOf(url) ?? 0;
    if (port >= firstLanePort && port < firstLanePort + lanes)
      throw new RangeError(
        `openLanes: firstLanePort ${firstLanePort}: "${url}" is at a port of lane ${port - firstLanePort}`,
      );
  }
}
