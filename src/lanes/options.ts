import { assertOptions, assertTimeoutMs } from "../contract/check.ts";
import { type EngineOptions, laneEngineOptions, resolveEngineOptions } from "../engine/options.ts";
import { parseUrl } from "../fabric/url.ts";
import { greetingLimits } from "../wire/handshake.ts";
import { assertListFits } from "./addresses.ts";
import type { LaneDeath } from "./lane.ts";

/** How soon a lane that has died is replaced. */
export interface RestartOptions {
  /** The first pause, when a lane has died young, in milliseconds; each further one is twice as long. The first death of a lane makes none. Default 100. */
  readonly minDelayMs?: number;
  /** The longest pause, in milliseconds. A lane that has lived as long starts from no pause again. Default 5000. */
  readonly maxDelayMs?: number;
}

/** Engine options that hold for the front and every lane. */
export type LaneEngineOptions = Pick<EngineOptions, (typeof laneEngineOptions)[number]>;

/** What `openLanes` takes: this, and what engines take that can be told to a thread. Limits and admission are each lane's own. */
export interface LanesOptions extends LaneEngineOptions {
  /** The published address, one or several: `tcp://host:port`, `verbs://host:port` or `shm://name`. Each lane has one of its own for each. */
  readonly listen: string | readonly string[];
  /** How many lanes, 1 to 256; fewer where their addresses are so long that the list of them does not fit 12 KiB. Default: as many as the process may use processors. */
  readonly lanes?: number;
  /** For tcp and verbs: lane n listens at port `firstLanePort` + n. Default: at free ports, which firewalls do not know. */
  readonly firstLanePort?: number;
  /** Given to the module in each thread, as a structured clone. */
  readonly data?: unknown;
  /** What the published address itself serves to those who know no lanes: the module's services, on the main thread (`serve`, the default), or nothing (`refer`). */
  readonly front?: "serve" | "refer";
  /** Memory bounds of each lane's thread, as `node:worker_threads` has them. A lane that exceeds them dies, and is replaced. */
  readonly resourceLimits?: {
    readonly maxOldGenerationSizeMb?: number;
    readonly maxYoungGenerationSizeMb?: number;
    readonly codeRangeSizeMb?: number;
    readonly stackSizeMb?: number;
  };
  readonly restart?: RestartOptions;
  /** Told when a lane's thread has ended by itself. Default: printed by console.error. */
  readonly onLaneDied?: (death: LaneDeath) => void;
  /** How long a lane may take to load its module and to listen, in milliseconds. Default 30,000. */
  readonly startTimeoutMs?: number;
}

/** The same, complete. */
export interface ResolvedLanesOptions {
  readonly module: string;
  readonly listen: readonly string[];
  readonly lanes: number;
  readonly firstLanePort: number | undefined;
  readonly data: unknown;
  readonly front: "serve" | "refer";
  readonly resourceLimits: NonNullable<LanesOptions["resourceLimits"]>;
  readonly restart: Required<RestartOptions>;
  readonly onLaneDied: (death: LaneDeath) => void;
  readonly startTimeoutMs: number;
  readonly engine: LaneEngineOptions;
}

const { maxLanes } = greetingLimits;
const ownOptions = [
  "listen",
  "lanes",
  "firstLanePort",
  "data",
  "front",
  "resourceLimits",
  "restart",
  "onLaneDied",
  "startTimeoutMs",
];

/**
 * @throws TypeError for an unknown option or a value of the wrong kind; RangeError for one out of bounds. Both name it. DataCloneError for data that cannot be
 * cloned.
 */
export function resolveLanesOptions(
  module: URL | string,
  options: LanesOptions,
  processors: number,
): ResolvedLanesOptions {
  assertOptions("openLanes", options, [...ownOptions, ...laneEngineOptions]);
  const {
    listen,
    lanes = Math.min(processors, maxLanes),
    firstLanePort,
    front = "serve",
    resourceLimits = {},
    restart = {},
    onLaneDied = printDeath,
    startTimeoutMs = 30_000,
  } = options;
  assertInteger("lanes", lanes, 1, maxLanes);
  if (firstLanePort !== undefined) assertInteger("firstLanePort", firstLanePort, 1, 65_536 - lanes);
  if (front !== "serve" && front !== "refer")
    throw new TypeError(`openLanes: front must be "serve" or "refer"; it is ${String(front)}`);
  assertOptions("openLanes: resourceLimits", resourceLimits, [
    "maxOldGenerationSizeMb",
    "maxYoungGenerationSizeMb",
    "codeRangeSizeMb",
    "stackSizeMb",
  ]);
  assertTimeoutMs("openLanes: startTimeoutMs", startTimeoutMs);
  if (typeof onLaneDied !== "function") throw new TypeError("openLanes: onLaneDied must be a function");
  const urls = typeof listen === "string" ? [listen] : listen;
  if (!Array.isArray(urls) || urls.length === 0)
    throw new TypeError("openLanes: listen must be a URL or an array of one or several");
  for (const url of urls) assertListFits(url, lanes, firstLanePort);
  if (firstLanePort !== undefined) assertNoClash(urls, lanes, firstLanePort);
  const engine = Object.fromEntries(
    laneEngineOptions.flatMap((name) => (options[name] === undefined ? [] : [[name, options[name]]])),
  ) as LaneEngineOptions;
  resolveEngineOptions(engine);
  return {
    module: moduleOf(module),
    listen: urls,
    lanes,
    firstLanePort,
    // A lane that is replaced later begins with what the first began with, whatever became of the caller's.
    data: structuredClone(options.data),
    front,
    resourceLimits,
    restart: resolveRestart(restart),
    onLaneDied,
    startTimeoutMs,
    engine,
  };
}

function printDeath({ lane, exitCode, error, replacedInMs }: LaneDeath): void {
  const what = `cinnabar: lane ${lane} died with exit code ${exitCode}, another takes its place in ${replacedInMs} ms`;
  if (error === undefined) console.error(what);
  else console.error(`${what}:`, error);
}

function resolveRestart(restart: RestartOptions): Required<RestartOptions> {
  assertOptions("openLanes: restart", restart, ["minDelayMs", "maxDelayMs"]);
  const { minDelayMs = 100, maxDelayMs = 5000 } = restart;
  assertTimeoutMs("openLanes: restart.minDelayMs", minDelayMs);
  assertTimeoutMs("openLanes: restart.maxDelayMs", maxDelayMs);
  return { minDelayMs, maxDelayMs: Math.max(minDelayMs, maxDelayMs) };
}

/** Only a URL says which file is meant whoever asks; a path would be looked for beside this file. */
function moduleOf(module: URL | string): string {
  const href = module instanceof URL ? module.href : module;
  if (typeof href === "string" && URL.canParse(href)) return href;
  throw new TypeError(
    `openLanes: the module must be a URL, as new URL("./service.js", import.meta.url); it is ${String(module)}`,
  );
}

function assertNoClash(urls: readonly string[], lanes: number, firstLanePort: number): void {
  for (const url of urls) {
    const { port } = parseUrl(url);
    if (port >= firstLanePort && port < firstLanePort + lanes)
      throw new RangeError(
        `openLanes: firstLanePort ${firstLanePort}: "${url}" is at a port of lane ${port - firstLanePort}`,
      );
  }
}

function assertInteger(name: string, value: unknown, low: number, high: number): void {
  if (Number.isSafeInteger(value) && (value as number) >= low && (value as number) <= high) return;
  throw new RangeError(
    `openLanes: ${name} must be an integer from ${low} to ${high}, it is ${String(value)}`,
  );
}
