import { randomBytes } from "node:crypto";
import { Quarantine } from "../bulk/quarantine.ts";
import { assertExposable, Region, type RegionOwner } from "../bulk/region.ts";
import type { Access } from "../bulk/region-kind.ts";
import { systemClock } from "../call/clock.ts";
import { leaveCall } from "../call/current-call.ts";
import { DeadlineWheel } from "../call/deadline-wheel.ts";
import { assertOptions, assertTimeoutMs } from "../contract/check.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { Progress } from "../fabric/progress.ts";
import { locate } from "../fabric/target.ts";
import { type Counters, newCounters } from "../observe/counters.ts";
import { dispatchTable } from "../server/dispatcher.ts";
import { ReplayCache } from "../server/replay-cache.ts";
import { ByteBudget } from "../session/byte-budget.ts";
import { Heartbeat } from "../session/heartbeat.ts";
import type { Session } from "../session/session.ts";
import type { SessionHost } from "../session/session-host.ts";
import { ConnectSilence, SessionTable } from "../session/session-table.ts";
import { type EngineOptions, type ResolvedEngineOptions, resolveEngineOptions } from "./options.ts";
import { Peer } from "./peer.ts";
import { Ports } from "./ports.ts";
import type { EngineStats } from "./stats.ts";

/** What `engine.connect` takes. */
export interface ConnectOptions {
  /** How long to wait for the peer's welcome, in milliseconds. Default: the engine's `connectTimeoutMs`. */
  readonly timeoutMs?: number;
}

/** What `engine.expose` takes. */
export interface ExposeOptions<A extends Access> {
  /** What a peer that is lent the region may do with it. */
  readonly access: A;
}

/**
 * How long the first hello is waited for before another is sent; each further one twice as long. A hello can be lost without a trace: libfabric's
 * tcp drops what is posted to an address before it has seen the end of the former connection there, as when a server has just been restarted.
 */
const firstAttemptMs = 1000;

/** How long `close` lets the last words (goodbyes, answers) leave. */
const closeGraceMs = 500;

/**
 * One participant on the fabric: it listens, connects, serves and calls, all on the thread that opened it. Close it, or let `await using` do so;
 * a listening engine keeps the process alive until then, one that only connects does not.
 */
export class Engine implements AsyncDisposable, RegionOwner {
  readonly #options: ResolvedEngineOptions;
  readonly #counters: Counters = newCounters();
  readonly #quarantine = new Quarantine();
  readonly #pullBudget: ByteBudget;
  readonly #offerBudget: ByteBudget;
  readonly #wheel = new DeadlineWheel(systemClock);
  readonly #replays: ReplayCache;
  readonly #heartbeat: Heartbeat;
  readonly #progress: Progress;
  readonly #ports: Ports;
  readonly #sessions: SessionTable;
  readonly #host: SessionHost;
  readonly #regions = new Set<Region>();
  readonly #peers = new Set<Peer>();
  #dirty: Session[] = [];
  #closing: Promise<void> | undefined;

  private constructor(options: ResolvedEngineOptions) {
    this.#options = options;
    this.#pullBudget = new ByteBudget(options.limits.maxPullBytes);
    this.#offerBudget = new ByteBudget(options.limits.maxOfferBytes);
    this.#replays = new ReplayCache(systemClock, options.limits);
    this.#host = this.#createHost();
    this.#sessions = new SessionTable(this.#host);
    this.#progress = new Progress(this.#sessions, () => this.#flush());
    this.#heartbeat = new Heartbeat(systemClock, options.heartbeatMs, () => this.#progress.poll());
    this.#ports = new Ports(this.#progress);
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
   * @throws TypeError for a malformed URL; RpcError `unavailable` when nobody answers there.
   */
  async connect(url: string, options: ConnectOptions = {}): Promise<Peer> {
    assertOptions("connect", options, ["timeoutMs"]);
    const { timeoutMs = this.#options.connectTimeoutMs } = options;
    assertTimeoutMs("connect: timeoutMs", timeoutMs);
    const peer = new Peer(
      url,
      this.#host,
      (self) => this.#openSession(self, timeoutMs),
      (self) => this.#peers.delete(self),
    );
    this.#peers.add(peer);
    try {
      await peer.session();
    } catch (error) {
      peer.close();
      throw error;
    }
    return peer;
  }

  /**
   * Makes memory available to the peers it is lent to: the region goes into a call's input where the contract says `bulk(…)`, and the handler reads or
   * writes it in place. The memory is not copied. Dispose the region when it is no longer lent (`using` does).
   *
   * @throws TypeError for a view or an access that will not do; RpcError `unavailable` when the engine is closed.
   */
  expose<A extends Access>(view: ArrayBufferView, options: ExposeOptions<A>): Region<A> {
    assertOptions("expose", options, ["access"]);
    assertExposable(view, options.access);
    this.#assertOpen();
    const region = new Region(this, view, options.access);
    this.#regions.add(region as unknown as Region);
    return region;
  }

  /** Counters since the engine opened, and what it holds now. */
  stats(): EngineStats {
    let callsOut = 0;
    let callsIn = 0;
    let queuedBytes = 0;
    for (const session of this.#sessions) {
      callsOut += session.callsOut;
      callsIn += session.callsIn;
      queuedBytes += session.queuedBytes;
    }
    return {
      counters: { ...this.#counters },
      sessions: this.#sessions.size,
      callsOut,
      callsIn,
      queuedBytes,
      deadlines: this.#wheel.size,
      regions: this.#regions.size,
      quarantinedBytes: this.#quarantine.bytes,
      pullingBytes: this.#pullBudget.bytes,
      offeredBytes: this.#offerBudget.bytes,
      replayCalls: this.#replays.size,
      replayBytes: this.#replays.bytes,
      ports: this.#ports.all.map((port) => ({
        url: port.url,
        provider: port.provider,
        agent: port.agent,
        ...port.gauges(),
      })),
    };
  }

  /**
   * Ends everything: peers are told, open calls fail with `unavailable` on both sides, handlers' signals fire, regions and ports are let go.
   * Always ends, within half a second. Safe to call again, and from a handler.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    this.#sessions.accepting = false;
    for (const peer of this.#peers) peer.close();
    const reason = new RpcError({
      code: "unavailable",
      message: "the engine has been closed",
      origin: "local",
    });
    for (const session of this.#sessions) session.end(reason);
    this.#replays.close(reason);
    const until = performance.now() + closeGraceMs;
    while (this.#ports.all.some((port) => port.busy) && performance.now() < until) {
      this.#progress.poll();
      await new Promise(setImmediate);
    }
    this.#heartbeat.close();
    this.#progress.close();
    this.#ports.close();
    this.#quarantine.releaseAll();
    for (const region of this.#regions) region.dispose();
  }

  /** @internal */
  onRegionReleased(region: Region): void {
    this.#regions.delete(region);
  }

  /** `timeoutMs` is for all of it: looking the name up, opening a port, and the peer's welcome. */
  async #openSession(peer: Peer, timeoutMs: number): Promise<Session> {
    this.#assertOpen();
    const untilMs = systemClock.now() + timeoutMs;
    const target = await within(timeoutMs, peer.url, locate(peer.url));
    const port = await this.#ports.towards(target);
    for (let attemptMs = firstAttemptMs; ; attemptMs *= 2) {
      this.#assertOpen();
      const { address, replyTo } = port.route(target);
      const leftMs = Math.max(1, untilMs - systemClock.now());
      const last = leftMs < 2 * attemptMs;
      try {
        return await this.#sessions.connect(
          port,
          port.admit(address),
          replyTo,
          peer.url,
          last ? leftMs : attemptMs,
        );
      } catch (error) {
        if (!(error instanceof ConnectSilence)) throw error;
        if (last) throw new ConnectSilence(peer.url, timeoutMs);
      }
    }
  }

  #assertOpen(): void {
    if (this.#closing === undefined) return;
    throw new RpcError({ code: "unavailable", message: "the engine has been closed", origin: "local" });
  }

  #flush(): boolean {
    leaveCall();
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

  #createHost(): SessionHost {
    const { services, methods } = dispatchTable(
      this.#options.serve,
      this.#options.onHandlerError,
      this.#replays,
    );
    return {
      clock: systemClock,
      wheel: this.#wheel,
      counters: this.#counters,
      limits: this.#options.limits,
      quarantine: this.#quarantine,
      pullBudget: this.#pullBudget,
      offerBudget: this.#offerBudget,
      incarnation: randomBytes(8).readBigUInt64LE(),
      services,
      methods,
      kick: () => this.#progress.kick(),
      markDirty: (session) => {
        if (session.dirty) return;
        session.dirty = true;
        this.#dirty.push(session);
      },
      watch: (session) => this.#heartbeat.watch(session),
      probe: (session) => this.#heartbeat.probe(session),
      heardNow: () => this.#heartbeat.nowMs,
      onSessionEnded: (session, reason) => {
        this.#sessions.remove(session);
        // Refused, or never answered: there was no session.
        if (session.remote === undefined) return;
        // Both sides close by word of mouth; what the fabric, its silence or broken bytes end is lost.
        if (reason.origin === "fabric") this.#counters.sessionsLost++;
        else this.#counters.sessionsClosed++;
      },
    };
  }
}

/** `work`, or `unavailable` after `timeoutMs`; what comes of it later is dropped. */
async function within<T>(timeoutMs: number, url: string, work: Promise<T>): Promise<T> {
  let cancel = () => {};
  const late = new Promise<never>((_, reject) => {
    cancel = systemClock.timer(timeoutMs, () =>
      reject(
        new RpcError({
          code: "unavailable",
          message: `${url} could not be looked up within ${timeoutMs} ms`,
          origin: "local",
        }),
      ),
    );
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    cancel();
  }
}
