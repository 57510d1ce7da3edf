/*
 * The room `engine`: composes the other rooms into an `Engine`, from `open` to `drain` and `close`.
 * Promises: options are checked before anything opens. `close` ends within a bound and leaves nothing open.
 * Takes: connections from `connect`, dispatch from `server`, sessions from `session`, regions from `memory`, ports
 * from `fabric`.
 */

import type { RpcCode } from "../base/errors/code.ts";
import { RpcError } from "../base/errors/rpc-error.ts";
import type { EngineLimits } from "../base/flow/engine-limits.ts";
import { type CallDirection, channels } from "../base/observe/channels.ts";
import type { Histogram } from "../base/observe/histogram.ts";
import { checkOptions, resolveOptions, shown } from "../base/options/options.ts";
import { systemClock } from "../base/time/clock.ts";
import type { SessionPeer } from "../client/session-peer.ts";
import type { BalancedPeer } from "../connect/balanced-peer.ts";
import type { BalanceOptions, ConnectOptions } from "../connect/connect-options.ts";
import type { Peer } from "../connect/peer.ts";
import type { Resolver } from "../connect/resolver.ts";
import { exposeFields } from "../memory/exposable.ts";
import { callerOf } from "../memory/leak-watch.ts";
import { type MapFileOptions, type MappedFile, mapFileFields } from "../memory/mapped-file.ts";
import type { Pool } from "../memory/pool.ts";
import type { Region } from "../memory/region.ts";
import type { RegionHandle } from "../memory/region-handle.ts";
import type { Access, OnGranted, RegionKeys } from "../memory/region-kind.ts";
import type { Implementation } from "../server/implement.ts";
import type { BorrowedRegion } from "../transfer/handles/borrowing.ts";
import { assertBorrowable, type BorrowOptions, borrowFields } from "../transfer/handles/borrowing.ts";
import { Drain, type DrainOptions, type DrainReport, drainFields } from "./drain.ts";
import type { EngineEvents } from "./engine-events.ts";
import { EngineHealth } from "./engine-health.ts";
import { EngineParts } from "./engine-parts.ts";
import { type OpenCall, openCalls } from "./open-call.ts";
import {
  type EngineOptionsOf,
  type EngineSettings,
  type ResolvedEngineOptions,
  resolveEngineOptions,
  settingsOf,
} from "./options.ts";
import { type SessionStats, sessionStats } from "./session-stats.ts";
import { type EngineStats, type StatsOptions, statsFields, statsOf } from "./stats.ts";

/** The options of `engine.expose`. */
export interface ExposeOptions<A extends Access> {
  /** What a peer with the grant may do with the region. */
  readonly access: A;
  /**
   * The lifetime of the keys that give peers access to the memory. "call": each call registers the memory anew, and its
   * keys end with the call. "region": the memory is registered once for each peer that receives it, until the region is
   * disposed or the session with the peer ends. That saves the cost of registration, which on RDMA devices pins all
   * pages. Choose it for peers that you trust: one that breaks the rules can use the keys between calls, too. Slices
   * have keys of their call in any case, and sealed sessions have none. Default "call".
   */
  readonly keys?: RegionKeys | undefined;
  /**
   * Called each time a call is granted the region, when its request is about to leave. The argument is the peer's
   * address, equal to `call.peer` of the peer's own calls. It may return a function, which is called once when that
   * call has ended for its caller: with its error, or undefined. Such a call makes no other attempt after its request
   * has left. An `RpcError` that `onGranted` throws fails the call, which does not leave. Slices do not call it.
   * Default: none.
   */
  readonly onGranted?: OnGranted | undefined;
}

/** The options of `Engine.open`. */
export type EngineOptions = EngineOptionsOf<Engine>;

/**
 * One participant on the fabric: it listens, connects, serves and calls, all on the thread that opened it. Close it, or
 * let `await using` do so. A listening engine keeps the process alive until then. An engine that only connects, or
 * listens only at `mem://`, does not.
 */
export class Engine implements AsyncDisposable {
  /** Reusable memory for bulk data: `using memory = engine.pool.take(bytes)`. Bounded by `limits.maxPoolBytes`. */
  readonly pool: Pool;
  /** The health of the engine and its services, as peers and health checks read it. */
  readonly health: EngineHealth;
  readonly #options: ResolvedEngineOptions;
  readonly #parts: EngineParts;
  #drain: Drain | undefined;

  private constructor(options: ResolvedEngineOptions) {
    this.#options = options;
    this.#parts = new EngineParts(options);
    this.pool = this.#parts.memory.pool;
    this.health = new EngineHealth(this.#parts.health);
  }

  /**
   * Opens an engine and listens at each URL of `listen`. If one of them fails, the engine listens at none.
   *
   * @example
   * await using engine = await Engine.open({ listen: ["shm://greeter", "tcp://0.0.0.0:7400"], serve: [greeter] });
   * console.log(engine.urls);
   *
   * @throws TypeError or RangeError for bad options. RpcError: `already_exists` when an address is in use;
   * `unavailable` when the addon or libfabric is missing (the message says what was tried and what to install).
   */
  static async open(options: EngineOptions = {}): Promise<Engine> {
    const engine = new Engine(resolveEngineOptions(options));
    try {
      const { serve = [] } = options;
      engine.#parts.serve("Engine.open", typeof serve === "function" ? await serve(engine) : serve);
      engine.#parts.health.onOpened();
      for (const url of engine.#options.listen) await engine.#parts.ports.listen(url);
    } catch (error) {
      await engine.close();
      throw error;
    }
    return engine;
  }

  /** `draining`: `drain` was called and has not ended. */
  get state(): "open" | "draining" | "closed" {
    if (this.#parts.closed) return "closed";
    return this.#drain === undefined ? "open" : "draining";
  }

  /**
   * Serves more services, also to peers that are already connected. A service is served until the engine closes.
   *
   * @example
   * const remote = engine.lazyPeer("tcp://10.0.0.7:7400").client(Greeter);
   * engine.serve(implement(Greeter, { greet: ({ name }) => remote.greet({ name }) }));
   *
   * @throws TypeError for anything that `implement` has not made, and for a service that is served already; nothing is
   * added then. RpcError `unavailable` when the engine drains or is closed.
   */
  serve(...implementations: Implementation[]): void {
    this.#parts.assertOpen();
    this.#parts.serve("engine.serve", implementations);
  }

  /**
   * Calls `listener` at each event of that name, until the returned function is called or the engine is closed. An error
   * that a listener throws becomes an uncaught exception.
   *
   * @example
   * const stop = engine.on("sessionEnded", ({ peer, reason }) => console.warn(`${peer.address}: ${reason.message}`));
   */
  on<E extends keyof EngineEvents>(event: E, listener: (detail: EngineEvents[E]) => void): () => void {
    return this.#parts.on(event, listener);
  }

  /**
   * The peers of all open sessions, from either side. Each can be called until its session ends.
   *
   * @example
   * for (const peer of engine.peers()) {
   *   if (peer.services.includes("greeter.v1")) await peer.client(Greeter).greet({ name: peer.address });
   * }
   */
  peers(): SessionPeer[] {
    return this.#parts.peers;
  }

  /** The URLs at which peers can reach the engine. A tcp port 0 appears as the port that the system chose. */
  get urls(): string[] {
    return this.#parts.ports.urls;
  }

  /** The limits in force: the given ones, and those that derive from the memory budget. */
  get limits(): EngineLimits {
    return this.#options.limits;
  }

  /** The options in force. */
  get options(): EngineSettings {
    return settingsOf(this.#options);
  }

  /** The served implementations, in the order in which they were added. */
  get implementations(): readonly Implementation[] {
    return [...this.#parts.served.implementations];
  }

  /** How long the engine has been open, in milliseconds. */
  get upMs(): number {
    return systemClock.now() - this.#parts.openedMs;
  }

  /**
   * A random 64-bit number of this engine. Any other engine at the same address, earlier or later, has another number.
   */
  get incarnation(): bigint {
    return this.#parts.incarnation;
  }

  /**
   * Connects to the engine at `url`. Resolves when that engine has welcomed this one.
   *
   * @example
   * const peer = await engine.connect("tcp://files.internal:7400");
   *
   * @throws TypeError or RangeError for a malformed URL or bad options. RpcError: `unavailable` when no engine answers,
   *   unless `reconnect.whileLost` is "wait"; the code of the refusal when the peer refuses.
   */
  connect(url: string, options?: ConnectOptions): Promise<Peer>;
  /**
   * Connects to several engines that serve the same services, and balances calls among them. Resolves when the first
   * engine has welcomed this one. The other engines, and those that the resolver names later, are connected in the
   * background.
   *
   * @example
   * const two = await engine.connect(["tcp://10.0.0.1:7400", "tcp://10.0.0.2:7400"], { policy: "leastInFlight" });
   * const many = await engine.connect(dnsResolver("tcp://files.internal:7400"));
   * const client = many.client(Files);
   *
   * @throws TypeError or RangeError for bad options or URLs. RpcError `unavailable` when no engine answers.
   */
  connect(urls: readonly string[] | Resolver, options?: BalanceOptions): Promise<BalancedPeer>;
  async connect(
    where: string | readonly string[] | Resolver,
    options: ConnectOptions | BalanceOptions = {},
  ): Promise<Peer | BalancedPeer> {
    const { connector } = this.#parts;
    return typeof where === "string" ? connector.peer(where, options) : connector.balanced(where, options);
  }

  /**
   * A peer that connects with its first call, and holds no resources before. `connect` connects at once. Several URLs
   * here name one engine, for instance over shared memory and over the network. Each time it connects, the first URL
   * that answers is used.
   *
   * @example
   * const peer = engine.lazyPeer(["shm://files", "tcp://10.0.0.7:7400"], { incarnation: 0x1f2e3d4c5b6a7988n });
   *
   * @throws TypeError or RangeError for malformed URLs or bad options. RpcError `unavailable` when the engine is closed.
   */
  lazyPeer(url: string | readonly string[], options?: ConnectOptions): Peer;
  /**
   * A balanced peer that does not wait for its first backend, as `connect` does. Its first calls wait until the
   * resolver has named a backend.
   *
   * @throws TypeError or RangeError for bad options. RpcError `unavailable` when the engine is closed.
   */
  lazyPeer(resolver: Resolver, options?: BalanceOptions): BalancedPeer;
  lazyPeer(
    where: string | readonly string[] | Resolver,
    options: ConnectOptions | BalanceOptions = {},
  ): Peer | BalancedPeer {
    const { connector } = this.#parts;
    const urls = typeof where === "string" ? [where] : where;
    if (typeof (urls as Resolver | undefined)?.start === "function")
      return connector.lazyBalanced(urls as Resolver, options);
    if (!Array.isArray(urls) || urls.length === 0)
      throw new TypeError("lazyPeer: expected a URL, an array of at least one URL, or a resolver");
    return connector.lazyPeer(urls, options);
  }

  /**
   * Makes memory a region that can be granted to peers. The region goes into a call's input where the contract says
   * `bulk(…)`, and the handler reads or writes it in place. Several views make one region, in their order. The memory
   * is not copied. Dispose the region when calls no longer need it (`using` does). A region that was not disposed emits
   * a `CinnabarLeakWarning` when the garbage collector finds it.
   *
   * @example
   * const samples = new Float64Array(1_000_000);
   * using region = engine.expose(samples, { access: "read" });
   * const { sum } = await sums.sum({ numbers: region });
   *
   * @throws TypeError for a bad view, access or keys. RangeError for more than 4096 segments. RpcError: `failed_precondition`
   * for detached memory; `unavailable` when the engine is closed.
   */
  expose<A extends Access>(
    views: ArrayBufferView | readonly ArrayBufferView[],
    options: ExposeOptions<A>,
  ): Region<A> {
    const { access, keys, onGranted } = resolveOptions("expose", options, exposeFields);
    return this.#parts.memory.expose(views, access as A, { keys, at: callerOf(this.expose), onGranted });
  }

  /**
   * Maps a file as a region: its bytes are memory, which peers read and write in place. `file` is a path, or a file
   * descriptor, which may be closed afterwards: of a file, a memfd or a device DAX. Space for all bytes is allocated
   * first, so that a full disk is an error here and not later. To grow a file, map it again with more `bytes`. Dispose
   * the region when calls no longer need it: then the file is unmapped, and views of it have length 0.
   *
   * @example
   * await using numbers = await engine.mapFile("numbers.bin", { bytes: 1 << 30, access: "read_write" });
   * new Float64Array(numbers.bytes.buffer).fill(1);
   * await numbers.flush();
   * const { sum } = await sums.sum({ numbers });
   *
   * @throws TypeError or RangeError for anything but a path or a descriptor, and for bad options. RpcError:
   *   `not_found`, `permission_denied`, `failed_precondition` when the system does not open or map the file;
   *   `resource_exhausted` when there is no space for it; `out_of_range` when it is shorter than `bytes` and is not
   *   writable; `invalid_argument` for an empty file without `bytes`, and for anything but a file; `unavailable` when
   *   the engine is closed, and without the addon.
   */
  async mapFile<A extends Access>(file: string | number, options: MapFileOptions<A>): Promise<MappedFile<A>> {
    const at = callerOf(this.mapFile);
    const { access, keys, bytes, writable } = resolveOptions("mapFile", options, mapFileFields);
    const isDescriptor = Number.isInteger(file) && (file as number) >= 0;
    if (!isDescriptor && (typeof file !== "string" || file === ""))
      throw new TypeError(`mapFile: file must be a path or a file descriptor, it is ${shown(file)}`);
    return this.#parts.memory.mapFile({ file, bytes, writable }, access as A, at, keys);
  }

  /**
   * Borrows a region that another engine has shared. The engine connects to the owner if there is no session yet, and
   * asks for the region. Return the region when it is no longer needed (`using` does).
   *
   * @example
   * const { page } = await cache.find({ key: "index" }); // the answer carries a handle
   * using borrowed = await engine.borrow(page);
   * const bytes = await borrowed.pull(Uint8Array);
   *
   * @throws TypeError or RangeError for anything but a handle, and for bad options. RpcError: `unavailable` when the
   * owner cannot be reached; `not_found` when the owner is gone or the region was disposed; `deadline_exceeded` when
   * the lease is over or `timeoutMs` have passed; `failed_precondition` for a handle of this engine's own.
   */
  async borrow<A extends Access>(
    handle: RegionHandle<A>,
    options: BorrowOptions = {},
  ): Promise<BorrowedRegion<A>> {
    checkOptions("borrow", options, borrowFields);
    const { signal, timeoutMs = this.#options.connectTimeoutMs } = options;
    assertBorrowable(handle, this.incarnation);
    this.#parts.assertOpen();
    const untilMs = systemClock.now() + timeoutMs;
    const link = await this.#parts.borrowConnections.reach(handle, timeoutMs, signal);
    const leftMs = Math.max(1, untilMs - systemClock.now());
    return (await this.#parts.borrowing.borrow(handle, link, leftMs, signal)) as BorrowedRegion<A>;
  }

  /**
   * Reads the certificates, the key and the revocation lists of `security.tls` again, if they were given as functions.
   * They apply to new sessions. An open session ends with `unauthenticated` if its peer is no longer trusted: its
   * certificate, or one above it, is revoked, its authority is gone from `ca`, or its key is gone from
   * `security.psk.lookup`. All other sessions continue.
   *
   * @example
   * process.on("SIGHUP", () => engine.reloadSecurity());
   *
   * @throws TypeError when the new ones cannot be used, and any error of the functions; the former ones then stay in
   *   force. RpcError `failed_precondition` for an engine without `security.tls` and `security.psk`.
   */
  reloadSecurity(): void {
    const { tls } = this.#parts;
    if (tls === undefined)
      throw new RpcError({
        code: "failed_precondition",
        message: "reloadSecurity: the engine has neither security.tls nor security.psk",
      });
    tls.reload();
    this.#parts.sessions.judgePeers(tls);
  }

  /**
   * Counters since the engine opened, and what the engine holds now. Plain data.
   *
   * @throws TypeError for bad options.
   */
  stats(options: StatsOptions = {}): EngineStats {
    return statsOf(this.#parts, resolveOptions("stats", options, statsFields).histograms);
  }

  /** Every call in flight, of both directions, oldest first. The list is made on demand. */
  calls(): OpenCall[] {
    const { exchanges, wheel } = this.#parts;
    return openCalls(exchanges, wheel);
  }

  /** Every open session, from either side. Plain data, made on demand. */
  sessions(): SessionStats[] {
    return sessionStats(this.#parts.exchanges);
  }

  /**
   * How long the calls of a method took, in milliseconds. `method` is `service/method`. With `code`, only the calls
   * that ended with this code count. The histogram is the caller's own, and can be merged with those of other engines
   * or other times. It is empty when there were no calls.
   *
   * @example
   * const latency = engine.latency("greeter.v1/greet", "out");
   * console.log(latency.count, latency.percentile(99));
   */
  latency(method: string, direction: CallDirection, code?: RpcCode | "ok"): Histogram {
    return this.#parts.metrics.latencyMs(method, direction, code);
  }

  /**
   * Publishes `stats()` on the diagnostics channel `cinnabar:stats`, for collectors that do not know the engine.
   * Without a subscriber it costs nothing.
   */
  publishStats(): void {
    if (!channels.stats.hasSubscribers) return;
    channels.stats.publish({ incarnation: this.incarnation, urls: this.urls, stats: this.stats() });
  }

  /**
   * Closes after the calls in flight have finished. New requests are refused with `unavailable`, and peers are
   * notified, so that they call other engines. Handlers continue and may make calls. After the last handler has ended,
   * new calls of this engine are refused too. The engine closes when every call has finished, or after `graceMs`. The
   * report lists the aborted calls. A second call returns the same report, and can shorten the grace but not lengthen
   * it.
   *
   * A handler may call `drain`, but must not await it: it would wait for itself.
   *
   * @example
   * const { aborted } = await engine.drain({ graceMs: 5_000 });
   * for (const { method, peer } of aborted) console.warn(`aborted: ${method} of ${peer}`);
   *
   * @throws TypeError or RangeError for bad options.
   */
  async drain(options: DrainOptions = {}): Promise<DrainReport> {
    const { graceMs } = resolveOptions("drain", options, drainFields);
    if (this.#drain !== undefined) this.#drain.shorten(graceMs);
    else if (!this.#parts.closed) this.#drain = new Drain(this.#parts, graceMs);
    if (this.#parts.closed) await this.#parts.close();
    return this.#drain === undefined ? { aborted: [], tookMs: 0 } : this.#drain.report;
  }

  /**
   * Ends everything at once. Peers are notified, open calls fail with `unavailable` on both sides, signals of handlers
   * fire, and regions and ports are closed. Takes at most half a second. Safe to call again, and from a handler.
   */
  close(): Promise<void> {
    this.#drain?.cut();
    return this.#parts.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
