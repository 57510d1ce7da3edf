import { channel } from "node:diagnostics_channel";
import { availableParallelism } from "node:os";
import type { EngineStats, StatsOptions } from "cinnabar/inspect";
import { boolean, type DrainOptions, type FieldsOf, milliseconds, resolveOptions } from "cinnabar/options";
import { type DrainReport, Engine, type SecurityOptions } from "cinnabar/standard";
import { Lane, type LaneListener, type LaneState } from "./lane.ts";
import { LaneList } from "./lane-list.ts";
import { closeServices, type LaneContext, type LaneServices, loadServices } from "./lane-module.ts";
import { EngineSecurity, type LaneSecurity } from "./lane-security.ts";
import { startsTooLong } from "./lane-thread.ts";
import { LaneDirectory } from "./lanes-service.ts";
import {
  dividedMemory,
  type LanesOptions,
  type ResolvedLanesOptions,
  resolveLanesOptions,
} from "./options.ts";
import { publishedUrls } from "./published-urls.ts";

/** The state of one lane. */
export interface LaneStatus {
  readonly lane: number;
  readonly state: LaneState;
  /**
   * The addresses of the lane, in the order of `listen`. While no engine runs: the last ones, or those it tries first.
   */
  readonly urls: readonly string[];
  /** The incarnation of the lane's engine; 0 while no engine runs. */
  readonly incarnation: bigint;
  /** How many threads of the lane have exited unexpectedly. */
  readonly deaths: number;
}

/** State and counters of the dispatcher and all lanes. */
export interface LanesStats {
  readonly dispatcher: EngineStats;
  /** By number. `engine` is undefined if the lane does not serve, or did not answer within a second. */
  readonly lanes: readonly (LaneStatus & { readonly engine: EngineStats | undefined })[];
}

/** The result of draining all lanes. `aborted` lists calls of the dispatcher and of all lanes. */
export interface LanesDrainReport extends DrainReport {
  /** Lanes that did not answer. They were terminated, with their calls in flight. */
  readonly unanswered: readonly number[];
}

/**
 * Serves the services of a module in several worker threads behind one address. Each thread loads the module. The main
 * thread loads it too, unless `dispatcher` is `"refer"`. The module exports a `LaneModule`. Resolves when all lanes
 * listen. If one lane cannot listen, all are closed. Clients connect to the published address by `connectLanes`.
 *
 * @example
 * await using lanes = await openLanes(new URL("./service.js", import.meta.url), {
 *   listen: "tcp://0.0.0.0:7400",
 *   lanes: 4,
 *   admission: { maxConcurrent: 16 }, // for each lane
 * });
 * console.log(lanes.urls, lanes.lanes.map(({ state }) => state));
 * closeOnSignals(lanes);
 *
 * @throws TypeError or RangeError for bad options. DataCloneError for data that cannot be cloned. RpcError:
 * `invalid_argument` or `unimplemented` when no RDMA device fits an address; `failed_precondition` when the module
 * cannot be loaded or exports no services (the message names it), or when a bundle lacks the file of the threads; `already_exists` when an address is in use;
 * `deadline_exceeded` when it takes longer than `startTimeoutMs`.
 */
export async function openLanes(module: URL | string, options: LanesOptions): Promise<Lanes> {
  const asked = resolveLanesOptions(module, options, availableParallelism());
  // Before threads start: what cannot be read or used is an error of this call.
  const given = asked.security?.current;
  await assertUsable(asked.engine, asked.security);
  const resolved = { ...asked, listen: await publishedUrls(asked.listen) };
  const list = new LaneList();
  const post = () => {
    if (dispatcher !== undefined) list.post({ urls: dispatcher.urls, lanes: lanes.map(entryOf) });
  };
  let dispatcher: Engine | undefined;
  const served = new Set<number>();
  const listener: LaneListener = {
    onLaneChanged(lane) {
      if (lane.state === "serving") served.add(lane.number);
      post();
      if (lane.state === "serving" && servingChannel.hasSubscribers) {
        const { number, urls, incarnation } = lane;
        servingChannel.publish({ lane: number, urls, incarnation });
      }
    },
    onLaneDied(death) {
      if (diedChannel.hasSubscribers) diedChannel.publish(death);
      // A lane that cannot start fails the opening, and its error is thrown there.
      if (dispatcher !== undefined || served.has(death.lane)) resolved.onLaneDied(death);
    },
  };
  const lanes: Lane[] = [];
  let loading: Promise<LaneServices> | undefined;
  try {
    for (let number = 0; number < resolved.lanes; number++) lanes.push(new Lane(number, resolved, listener));
    loading = dispatcherServices(resolved);
    const [services] = await Promise.all([
      inTime(loading, resolved),
      ...lanes.map((lane) => lane.firstServing()),
    ]);
    const security = new EngineSecurity(given, services.security);
    const { serve } = resolved.dispatcher === "serve" ? services : { serve: [] };
    dispatcher = await Engine.open({
      ...dividedMemory(resolved.engine, resolved.lanes + 1),
      ...(security.options === undefined ? {} : { security: withDirectory(security.options) }),
      listen: resolved.listen,
      serve: async (engine) => [
        ...(typeof serve === "function" ? await serve(engine) : serve),
        list.implementation,
      ],
    });
    post();
    return new Lanes({ dispatcher, lanes, list, services, security, credentials: asked.security });
  } catch (error) {
    // Also services that are made later: no engine will serve them.
    loading?.then((services) => closeServices(services, "the dispatcher")).catch(() => {});
    await Promise.all(lanes.map((lane) => lane.close()));
    throw error;
  }
}

interface LanesParts {
  readonly dispatcher: Engine;
  readonly lanes: readonly Lane[];
  readonly list: LaneList;
  readonly services: LaneServices;
  readonly security: EngineSecurity;
  readonly credentials: LaneSecurity | undefined;
}

/**
 * Services in several worker threads behind one address, made by `openLanes`. The dispatcher is an engine of the main
 * thread. It sends clients the addresses of the lanes. When a thread exits unexpectedly, the next one starts. The
 * process stays alive until `close`, `drain` or `await using` ends the lanes.
 */
export class Lanes implements AsyncDisposable {
  readonly #dispatcher: Engine;
  readonly #lanes: readonly Lane[];
  readonly #list: LaneList;
  readonly #services: LaneServices;
  /** The security of the dispatcher. */
  readonly #security: EngineSecurity;
  /** The credentials of all lanes. Undefined without the option `security`. */
  readonly #credentials: LaneSecurity | undefined;
  #drain: Promise<LanesDrainReport> | undefined;
  #closing: Promise<void> | undefined;

  /** @internal Made by `openLanes`. */
  constructor({ dispatcher, lanes, list, services, security, credentials }: LanesParts) {
    this.#dispatcher = dispatcher;
    this.#lanes = lanes;
    this.#list = list;
    this.#services = services;
    this.#security = security;
    this.#credentials = credentials;
  }

  /** `draining`: `drain` was called and has not ended. */
  get state(): "open" | "draining" | "closed" {
    if (this.#closing !== undefined) return "closed";
    return this.#drain === undefined ? "open" : "draining";
  }

  /** The URLs for clients. A tcp port 0 is replaced by the port that was picked. */
  get urls(): string[] {
    return this.#dispatcher.urls;
  }

  /**
   * Identifies the dispatcher: `peer.incarnation` of a client that is connected to one of `urls`. It stays the same when
   * a lane is replaced, and another process at the same addresses has another one.
   */
  get incarnation(): bigint {
    return this.#dispatcher.incarnation;
  }

  /** The lanes, by number. */
  get lanes(): LaneStatus[] {
    return this.#lanes.map(statusOf);
  }

  /**
   * State and counters of the dispatcher and all lanes. Waits for each lane for at most a second.
   *
   * @throws TypeError for bad options.
   */
  async stats(options: StatsOptions = {}): Promise<LanesStats> {
    const { histograms } = resolveOptions("stats", options, statsFields);
    const lanes = this.#lanes.map(async (lane) => ({
      ...statusOf(lane),
      engine: await lane.stats(histograms),
    }));
    return { dispatcher: this.#dispatcher.stats({ histograms }), lanes: await Promise.all(lanes) };
  }

  /**
   * Publishes `stats()` on the diagnostics channel `cinnabar:stats`: one message for the dispatcher, and one for each
   * lane with its number.
   */
  async publishStats(): Promise<void> {
    if (!statsChannel.hasSubscribers) return;
    this.#dispatcher.publishStats();
    for (const { lane, incarnation, urls, engine: stats } of (await this.stats()).lanes)
      if (stats !== undefined) statsChannel.publish({ lane, incarnation, urls, stats });
  }

  /**
   * Reads the certificates, the key and the revocation lists of `security.tls` again, once for the dispatcher and all
   * lanes, as `engine.reloadSecurity` does. Resolves when every lane has them. Lanes that start later have them too.
   *
   * @throws TypeError when the new ones cannot be used, and what the functions throw: the former ones hold then,
   * everywhere. RpcError: `failed_precondition` without `security.tls` and `security.psk`; `unavailable` when a lane has
   * not answered within 5 s, because it computes or is loading its module: it reloads when it is done.
   */
  async reloadSecurity(): Promise<void> {
    const credentials = this.#credentials;
    // The dispatcher has no credentials to reload, and its error says so.
    if (credentials === undefined) return this.#dispatcher.reloadSecurity();
    const read = credentials.read();
    this.#security.reload(this.#dispatcher, read);
    credentials.current = read;
    const reloads = await Promise.allSettled(this.#lanes.map((lane) => lane.reloadSecurity(read)));
    for (const reload of reloads) if (reload.status === "rejected") throw reload.reason;
  }

  /**
   * Closes after the calls in flight have finished. The dispatcher and all lanes drain at the same time, as
   * `engine.drain` does. A lane that does not answer within `graceMs` and some seconds is terminated. A second call
   * gives the same report, and can shorten the grace but not lengthen it.
   *
   * @throws TypeError or RangeError for bad options.
   */
  async drain(options: DrainOptions = {}): Promise<LanesDrainReport> {
    const { graceMs } = resolveOptions("drain", options, drainFields);
    if (this.#drain !== undefined) {
      void this.#dispatcher.drain({ graceMs });
      for (const lane of this.#lanes) void lane.drain(graceMs);
    } else if (this.#closing === undefined) this.#drain = this.#drainAll(graceMs);
    return this.#drain ?? { aborted: [], tookMs: 0, unanswered: [] };
  }

  async #drainAll(graceMs: number): Promise<LanesDrainReport> {
    const begunMs = performance.now();
    // Those that follow the list are no calls that a drain waits for.
    this.#list.end();
    const [dispatcher, reports] = await Promise.all([
      this.#dispatcher.drain({ graceMs }),
      Promise.all(this.#lanes.map((lane) => lane.drain(graceMs))),
    ]);
    await this.close();
    return {
      aborted: [dispatcher, ...reports].flatMap((report) => report?.aborted ?? []),
      unanswered: this.#lanes.filter((_, i) => reports[i] === undefined).map(({ number }) => number),
      tookMs: performance.now() - begunMs,
    };
  }

  /**
   * Closes the dispatcher and all lanes. Open calls fail with `unavailable` on both sides. A thread that does not end
   * by itself is terminated, so closing takes at most some seconds. Safe to call twice.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#list.end();
    await Promise.all([this.#dispatcher.close(), ...this.#lanes.map((lane) => lane.close())]);
    await closeServices(this.#services, "the dispatcher");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

const servingChannel = channel("cinnabar:lane.serving");
const diedChannel = channel("cinnabar:lane.died");
const statsChannel = channel("cinnabar:stats");

const statsFields = { histograms: boolean(false) } satisfies FieldsOf<StatsOptions>;
const drainFields = {
  graceMs: milliseconds({ low: 0, fallback: 10_000 }),
} satisfies FieldsOf<DrainOptions>;

/** @throws TypeError or RangeError for options that no engine takes: an engine that listens nowhere tries them. */
async function assertUsable(
  options: ResolvedLanesOptions["engine"],
  security: LaneSecurity | undefined,
): Promise<void> {
  const secured = security === undefined ? {} : { security: security.judged };
  const engine = await Engine.open({ ...options, ...secured });
  await engine.close();
}

/**
 * The rules of the module, for a dispatcher. Every client that is let in may learn the addresses of the lanes, which
 * apply the rules themselves.
 */
function withDirectory({ allow, authorize, ...security }: SecurityOptions): SecurityOptions {
  const path = `${LaneDirectory.name}/watch`;
  return {
    ...security,
    ...(allow && { allow: (identity, method) => method === path || allow(identity, method) }),
    ...(authorize && { authorize: (call) => call.method === path || authorize(call) }),
  };
}

const entryOf = ({ urls, incarnation }: Lane) => ({ urls, incarnation });

function statusOf({ number, state, urls, incarnation, deaths }: Lane): LaneStatus {
  return { lane: number, state, urls, incarnation, deaths };
}

/** What the main thread serves to clients that know no lanes. */
async function dispatcherServices({
  module,
  lanes,
  data,
  dispatcher,
  security,
}: ResolvedLanesOptions): Promise<LaneServices> {
  // Here, too, the module decides which peers are let in.
  if (dispatcher === "refer" && security === undefined) return { serve: [] };
  const context: LaneContext = { lane: "dispatcher", lanes, data: structuredClone(data) };
  return loadServices(module, context, security !== undefined);
}

/**
 * The dispatcher's module has as long as a lane's. The timer does not keep the process alive: the threads of the lanes
 * do, and the opening may have failed before.
 */
function inTime<T>(loading: Promise<T>, { module, startTimeoutMs }: ResolvedLanesOptions): Promise<T> {
  return new Promise((resolve, reject) => {
    const tooLong = () => reject(startsTooLong("the dispatcher", module, startTimeoutMs));
    const timer = setTimeout(tooLong, startTimeoutMs).unref();
    loading.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
