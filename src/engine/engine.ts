import { randomBytes } from "node:crypto";
import type { Resolver } from "../balance/resolver.ts";
import { assertMemoryKind, type MemoryKind } from "../bulk/device-memory.ts";
import { exposable } from "../bulk/exposable.ts";
import { callerOf } from "../bulk/leak-watch.ts";
import { Pool } from "../bulk/pool.ts";
import { Quarantine } from "../bulk/quarantine.ts";
import { Region } from "../bulk/region.ts";
import { RegionCore, type RegionOwner } from "../bulk/region-core.ts";
import type { RegionHandle } from "../bulk/region-handle.ts";
import type { Access } from "../bulk/region-kind.ts";
import type { StreamDirection } from "../bulk/stream-kind.ts";
import { systemClock } from "../call/clock.ts";
import { DeadlineWheel } from "../call/deadline-wheel.ts";
import { assertOptions, assertTimeoutMs } from "../contract/check.ts";
import { closedError } from "../errors/closed.ts";
import { lockedMemory } from "../fabric/locked-memory.ts";
import { Progress } from "../fabric/progress.ts";
import type { BorrowedRegion } from "../memory/borrowed-region.ts";
import { assertBorrowable, Borrowing, type BorrowOptions } from "../memory/borrowing.ts";
import { builtinMethods } from "../memory/builtins.ts";
import { BulkStream, type BulkStreamOptions, streamShape } from "../memory/bulk-stream.ts";
import { Shares } from "../memory/shares.ts";
import { type CallDirection, CallMetrics } from "../observe/call-metrics.ts";
import { channels } from "../observe/channels.ts";
import { type Counters, newCounters } from "../observe/counters.ts";
import type { Histogram } from "../observe/histogram.ts";
import { Admission } from "../server/admission.ts";
import { dispatchTable } from "../server/dispatcher.ts";
import { ReplayCache } from "../server/replay-cache.ts";
import { ByteBudget } from "../session/byte-budget.ts";
import { Heartbeat } from "../session/heartbeat.ts";
import { drainingError } from "../session/intake.ts";
import { hasOpenCalls, isServing, type OpenCall, openCalls } from "../session/open-call.ts";
import { RequestCredits } from "../session/request-credits.ts";
import type { Session } from "../session/session.ts";
import type { ServedMethod, SessionHost } from "../session/session-host.ts";
import { SessionTable } from "../session/session-table.ts";
import { builtin, firstBuiltin } from "../wire/builtin.ts";
import { assertGraceMs, Drain, type DrainOptions, type DrainReport, defaultGraceMs } from "./drain.ts";
import type { GroupOptions } from "./group-options.ts";
import { LaneBoard, type LaneEntry } from "./lane-board.ts";
import { lanesMethod } from "./lanes-method.ts";
import { type ConnectOptions, Links } from "./links.ts";
import { type EngineOptions, type ResolvedEngineOptions, resolveEngineOptions } from "./options.ts";
import { Owners } from "./owners.ts";
import type { Peer } from "./peer.ts";
import type { PeerGroup } from "./peer-group.ts";
import { Ports } from "./ports.ts";
import { type EngineStats, portStats, trafficOf } from "./stats.ts";

/** What `engine.expose` takes. */
export interface ExposeOptions<A extends Access> {
  /** What a peer that is lent the region may do with it. */
  readonly access: A;
  /** Where the memory lies. Default "host", the one kind that can be registered so far: a device's is refused with `unimplemented`. */
  readonly memory?: MemoryKind;
}

/** How long `close` lets the last words (goodbyes, answers) leave. */
const closeGraceMs = 500;

/**
 * One participant on the fabric: it listens, connects, serves and calls, all on the thread that opened it. Close it, or let `await using` do so;
 * a listening engine keeps the process alive until then, one that only connects does not.
 */
export class Engine implements AsyncDisposable, RegionOwner {
  /** Memory for bulk data, to be used again and again: `using memory = engine.pool.take(bytes)`. Bounded by `limits.maxPoolBytes`. */
  readonly pool: Pool;
  readonly #options: ResolvedEngineOptions;
  readonly #counters: Counters = newCounters();
  readonly #metrics: CallMetrics;
  readonly #quarantine = new Quarantine();
  readonly #pullBudget: ByteBudget;
  readonly #offerBudget: ByteBudget;
  readonly #wheel = new DeadlineWheel(systemClock);
  readonly #replays: ReplayCache;
  readonly #admission: Admission;
  readonly #heartbeat: Heartbeat;
  readonly #progress: Progress;
  readonly #ports: Ports;
  readonly #sessions: SessionTable;
  readonly #host: SessionHost;
  readonly #regions = new Set<RegionCore>();
  readonly #links: Links;
  readonly #incarnation = randomBytes(8).readBigUInt64LE();
  readonly #borrowing = new Borrowing();
  readonly #owners: Owners;
  readonly #laneBoard: LaneBoard;
  /** @internal */
  readonly sharing = new Shares(() => this.urls, this.#incarnation);
  #dirty: Session[] = [];
  #closing: Promise<void> | undefined;
  #drain: Drain | undefined;

  private constructor(options: ResolvedEngineOptions) {
    this.#options = options;
    this.#metrics = new CallMetrics(options.slowCallMs, options.measureLatency);
    this.#pullBudget = new ByteBudget(options.limits.maxPullBytes);
    this.#offerBudget = new ByteBudget(options.limits.maxOfferBytes);
    this.pool = new Pool(systemClock, options.limits.maxPoolBytes, (bytes, access, at) =>
      this.#exposeAs(bytes, access, at),
    );
    this.#replays = new ReplayCache(systemClock, options.limits);
    this.#admission = new Admission(systemClock, this.#wheel, options.admission);
    this.#host = this.#createHost();
    this.#sessions = new SessionTable(this.#host);
    this.#owners = new Owners(this.#sessions, (url, timeoutMs) => this.connect(url, { timeoutMs }));
    this.#progress = new Progress(this.#sessions, () => this.#flush());
    this.#heartbeat = new Heartbeat(systemClock, options.heartbeatMs, () => this.#progress.poll());
    this.#ports = new Ports(this.#progress, options);
    this.#laneBoard = new LaneBoard(this.#ports, this.#sessions);
    this.#links = new Links(this.#host, this.#sessions, this.#ports, options.connectTimeoutMs, () =>
      this.#assertOpen(),
    );
  }

  /**
   * Opens an engine and listens where it is told. All or nothing: when one URL cannot be had, none is held.
   *
   * @throws TypeError or RangeError for bad options; RpcError `already_exists` when an address is in use, `unavailable` when the addon or
   * libfabric is missing (the message says what was tried and what to install).
   */
  static async open(options: EngineOptions = {}): Promise<Engine> {
    const engine = new Engine(resolveEngineOptions(options));
    try {
      for (const url of engine.#options.listen) await engine.#ports.listen(url);
    } catch (error) {
      await engine.close();
      throw error;
    }
    return engine;
  }

  /** `draining`: on the way to be closed, see `drain`. */
  get state(): "open" | "draining" | "closed" {
    if (this.#closing !== undefined) return "closed";
    return this.#drain === undefined ? "open" : "draining";
  }

  /** Where peers can reach it; a tcp port 0 shows as the port it got. */
  get urls(): string[] {
    return this.#ports.urls;
  }

  /** A random 64-bit number that tells this engine's life from any other at the same address. */
  get incarnation(): bigint {
    return this.#host.incarnation;
  }

  /**
   * Connects to the engine at `url`. Resolves when it has welcomed us.
   *
   * @throws TypeError or RangeError for a malformed URL or bad options; RpcError `unavailable` when nobody answers there, the code of its refusal when
   * the peer will have no session.
   */
  connect(url: string, options?: ConnectOptions): Promise<Peer>;
  /**
   * Connects to several engines that serve the same, and balances calls among them. Resolves when the first has welcomed us; the others follow, and those that the
   * resolver names later.
   *
   * @throws TypeError or RangeError for bad options or URLs; RpcError `unavailable` when nobody answers.
   */
  connect(urls: readonly string[] | Resolver, options?: GroupOptions): Promise<PeerGroup>;
  async connect(
    where: string | readonly string[] | Resolver,
    options: ConnectOptions | GroupOptions = {},
  ): Promise<Peer | PeerGroup> {
    return typeof where === "string" ? this.#links.peer(where, options) : this.#links.group(where, options);
  }

  /**
   * Makes memory available to the peers it is lent to: the region goes into a call's input where the contract says `bulk(…)`, and the handler reads or
   * writes it in place. Several views make one region, their bytes in their order. The memory is not copied. Dispose the region when it is no
   * longer lent (`using` does); one that is forgotten instead gives a `CinnabarLeakWarning` when the garbage collector finds it.
   *
   * @throws TypeError for a view or an access that will not do; RangeError for more than 4096 pieces; RpcError `failed_precondition` for detached
   * memory, `unimplemented` for a device's, `unavailable` when the engine is closed.
   */
  expose<A extends Access>(
    views: ArrayBufferView | readonly ArrayBufferView[],
    options: ExposeOptions<A>,
  ): Region<A> {
    assertOptions("expose", options, ["access", "memory"]);
    assertMemoryKind("expose", options.memory);
    return this.#exposeAs(views, options.access, callerOf(this.expose));
  }

  /**
   * A byte stream for one call: it goes into the call's input where the contract says `bulkStream(…)`. With "read" the handler reads what is written
   * into its `writable` here, with "write" the handler writes what its `readable` gives here. The bytes go through a ring of chunks, one-sided.
   *
   * @throws TypeError or RangeError for a bad direction or option; RpcError `unavailable` when the engine is closed.
   */
  bulkStream<D extends StreamDirection>(direction: D, options: BulkStreamOptions = {}): BulkStream<D> {
    assertOptions("bulkStream", options, ["chunkBytes", "chunks"]);
    const shape = streamShape(direction, options);
    this.#assertOpen();
    return new BulkStream(direction, shape, (ring, access) => this.expose(ring, { access }));
  }

  /**
   * Borrows a region that another engine has shared: connects to it, if this engine has no session with it yet, and asks for the region. Give it back
   * when you are done (`using` does).
   *
   * @throws TypeError or RangeError for what is no handle, or bad options; RpcError `unavailable` when the owner cannot be reached, `not_found` when it is gone or the region has been
   * disposed, `deadline_exceeded` when the lease is over or `timeoutMs` have passed, `failed_precondition` for a handle of this engine's own.
   */
  async borrow<A extends Access>(
    handle: RegionHandle<A>,
    options: BorrowOptions = {},
  ): Promise<BorrowedRegion<A>> {
    assertOptions("borrow", options, ["signal", "timeoutMs"]);
    const { signal, timeoutMs = this.#options.connectTimeoutMs } = options;
    assertTimeoutMs("borrow: timeoutMs", timeoutMs);
    assertBorrowable(handle, this.#incarnation);
    this.#assertOpen();
    const untilMs = systemClock.now() + timeoutMs;
    const link = await this.#owners.reach(handle, timeoutMs, signal);
    const leftMs = Math.max(1, untilMs - systemClock.now());
    return (await this.#borrowing.borrow(handle, link, leftMs, signal)) as BorrowedRegion<A>;
  }

  /** @internal Tells all peers, those to come too, which lanes it speaks for. */
  postLanes(lanes: readonly LaneEntry[]): void {
    this.#laneBoard.post(lanes);
  }

  /** Counters since the engine opened, and what it holds now. */
  stats(): EngineStats {
    return {
      counters: { ...this.#counters },
      sessions: this.#sessions.size,
      ...trafficOf(this.#sessions),
      deadlines: this.#wheel.size,
      regions: this.#regions.size,
      quarantinedBytes: this.#quarantine.bytes,
      pullingBytes: this.#pullBudget.bytes,
      offeredBytes: this.#offerBudget.bytes,
      lockedMemory: this.#ports.all.some(({ scheme }) => scheme === "verbs") ? lockedMemory() : undefined,
      pool: this.pool.stats(),
      replayCalls: this.#replays.size,
      replayBytes: this.#replays.bytes,
      admission: this.#admission.stats(),
      methods: this.#metrics.stats(),
      ports: this.#ports.all.map(portStats),
    };
  }

  /** Every call that is in flight, made or served here, oldest first. Costs the hot path nothing: it looks the calls up when asked. */
  calls(): OpenCall[] {
    return openCalls(this.#host, this.#sessions, this.#wheel);
  }

  /**
   * How long the calls of a method took, in milliseconds, as a histogram of its own that can be merged with others': the same method's at other
   * engines, or the engine's own of another time. Empty when there were none. `method` is `service/method`.
   */
  latency(method: string, direction: CallDirection): Histogram {
    return this.#metrics.latencyMs(method, direction);
  }

  /** Publishes `stats()` on the diagnostics channel `cinnabar:stats`, for whoever collects without knowing the engine. Costs nothing while nobody subscribes. */
  publishStats(): void {
    if (!channels.stats.hasSubscribers) return;
    channels.stats.publish({ incarnation: this.incarnation, urls: this.urls, stats: this.stats() });
  }

  /**
   * Closes without cutting off what is in flight. New requests are refused with `unavailable`, and peers are told, so that they go elsewhere. Handlers go on and may
   * make calls of their own; when the last has ended, new calls of this engine are refused too. When everything has finished, or after `graceMs`, the engine closes, and the report lists what was aborted.
   * Always ends. Called again it gives the same report, and can shorten the grace, never lengthen it. A handler may call it, but must not wait for it: it would wait for itself.
   *
   * @throws TypeError or RangeError for bad options.
   */
  async drain(options: DrainOptions = {}): Promise<DrainReport> {
    assertOptions("drain", options, ["graceMs"]);
    const { graceMs = defaultGraceMs } = options;
    assertGraceMs("drain", graceMs);
    if (this.#drain !== undefined) this.#drain.within(graceMs);
    else if (this.#closing === undefined) this.#drain = this.#beginDrain(graceMs);
    await this.#closing;
    return this.#drain === undefined ? { aborted: [], tookMs: 0 } : this.#drain.report;
  }

  #beginDrain(graceMs: number): Drain {
    this.#sessions.accepting = false;
    return new Drain(
      {
        clock: systemClock,
        intake: this.#host.intake,
        announce: () => {
          for (const session of this.#sessions) session.ping();
        },
        serves: () => isServing(this.#sessions) || this.#replays.running > 0,
        works: () =>
          hasOpenCalls(this.#sessions, this.#wheel) ||
          this.#replays.running > 0 ||
          [...this.#sessions].some((session) => session.keptBodies > 0 || session.queuedBytes > 0),
        calls: () => this.calls(),
        close: () => this.close(),
      },
      graceMs,
    );
  }

  /**
   * Ends everything: peers are told, open calls fail with `unavailable` on both sides, handlers' signals fire, regions and ports are let go.
   * Always ends, within half a second. Safe to call again, and from a handler.
   */
  close(): Promise<void> {
    this.#drain?.cut();
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    this.#sessions.accepting = false;
    this.sharing.clear();
    this.#links.close();
    const reason = closedError("the engine");
    // Before their sessions end: their callers hear that nothing was executed.
    this.#admission.close();
    for (const session of this.#sessions) session.end(reason);
    this.#replays.close(reason);
    const until = performance.now() + closeGraceMs;
    const { partings } = this.#host;
    while ((partings.size > 0 || this.#ports.all.some((port) => port.busy)) && performance.now() < until) {
      this.#progress.poll();
      await new Promise(setImmediate);
    }
    for (const parting of partings) parting.end();
    this.#heartbeat.close();
    this.#progress.close();
    this.#ports.close();
    this.#quarantine.releaseAll();
    for (const region of this.#regions) region.dispose();
    this.pool.close();
    this.#wheel.close();
  }

  /** @internal */
  onRegionReleased(region: RegionCore): void {
    this.#regions.delete(region);
  }

  #exposeAs<A extends Access>(
    views: ArrayBufferView | readonly ArrayBufferView[],
    access: A,
    at: string,
  ): Region<A> {
    const segments = exposable(views, access);
    this.#assertOpen();
    const core = new RegionCore(this, segments, access, at);
    this.#regions.add(core);
    return new Region<A>(core);
  }

  #assertOpen(): void {
    if (this.#closing === undefined && this.#host.intake.calls) return;
    if (this.#closing === undefined) throw drainingError("this engine", "local");
    throw closedError("the engine");
  }

  #flush(): boolean {
    if (this.#dirty.length === 0) return false;
    const dirty = this.#dirty;
    this.#dirty = [];
    let sent = false;
    for (const session of dirty) {
      session.dirty = false;
      if (session.flush()) sent = true;
    }
    return sent;
  }

  #builtins(): (ServedMethod | undefined)[] {
    const methods = builtinMethods(this.sharing, this.#borrowing, this.#incarnation);
    methods[builtin.lanes - firstBuiltin] = lanesMethod;
    return methods;
  }

  #createHost(): SessionHost {
    const { services, methods } = dispatchTable(
      this.#options.serve,
      this.#options.onHandlerError,
      this.#replays,
      this.#admission,
      this.#metrics,
    );
    return {
      clock: systemClock,
      wheel: this.#wheel,
      intake: { requests: true, calls: true },
      counters: this.#counters,
      metrics: this.#metrics,
      limits: this.#options.limits,
      quarantine: this.#quarantine,
      partings: new Set(),
      credits: new RequestCredits(this.#options.limits.maxRequestsInAll, this.#options.limits.maxRequests),
      pullBudget: this.#pullBudget,
      offerBudget: this.#offerBudget,
      liveness: this.#options,
      incarnation: this.#incarnation,
      services,
      methods,
      builtins: this.#builtins(),
      lanesFor: (port) => this.#laneBoard.at(port),
      kick: () => this.#progress.kick(),
      markDirty: (session) => {
        if (session.dirty) return;
        session.dirty = true;
        this.#dirty.push(session);
      },
      watch: (session) => this.#heartbeat.watch(session),
      ponged: (session) => this.#heartbeat.ponged(session),
      probe: (session) => this.#heartbeat.probe(session),
      heardNow: () => this.#heartbeat.nowMs,
      arrivedMs: () => this.#progress.arrivedMs,
      onSessionEnded: (session, reason) => {
        this.#sessions.remove(session);
        this.#borrowing.onSessionEnded(session, reason);
        session.observer?.onEnded(reason);
        // Refused, or never answered: there was no session.
        if (session.remote === undefined) return;
        // Both sides close by word of mouth; what the fabric, its silence or broken bytes end is lost.
        if (reason.origin === "fabric") this.#counters.sessionsLost++;
        else this.#counters.sessionsClosed++;
      },
    };
  }
}
