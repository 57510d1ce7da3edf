import { RpcError } from "../base/errors/rpc-error.ts";
import type { OutgoingCall } from "../call/outgoing-call.ts";
import { RetriedCalls } from "../call/retried-calls.ts";
import type { CallSession, SessionSource } from "../client/session-source.ts";
import { isWildcard } from "../fabric/host.ts";
import { type FabricUrl, formatHostUrl, hasHosts, parseUrl } from "../fabric/libfabric/url.ts";
import type { Exchange } from "../session/calls/exchange.ts";
import type { EngineServices } from "../session/connection/engine-services.ts";
import type { LaneAddress } from "../wire/handshake.ts";
import { Backend, type BackendListener } from "./backend.ts";
import { BackendSet, type BackendSetListener } from "./backend-set.ts";
import type { ResolvedBalanceOptions } from "./connect-options.ts";
import type { PeerConnection } from "./peer-connection.ts";
import type { BackendStats } from "./peer-state.ts";

/** What the worker lanes of a server are reached with. */
export interface LaneTerms {
  readonly options: ResolvedBalanceOptions;
  /** Makes the connection to the lane of `server` at `url`. */
  readonly connect: (url: string, server: ServerBackend) => PeerConnection;
}

/**
 * A server: one engine, or a dispatcher with its worker lanes. While the engine announces lanes, calls go to the set of
 * these, and the session with the engine itself stays open: changes of the lanes are announced on it. It is the one
 * backend of a peer with one URL, and one of several in the set of a balanced peer.
 */
export class ServerBackend extends Backend implements SessionSource, BackendSetListener {
  readonly retried = new RetriedCalls();
  readonly #terms: LaneTerms;
  /** Undefined while no lanes are announced. */
  #lanes: BackendSet | undefined;
  #announced: readonly LaneAddress[] = [];

  /** `options` and `set` are those of `Backend`. Without a set it is connected again by its next call. */
  constructor(
    connection: PeerConnection,
    options: ResolvedBalanceOptions,
    terms: LaneTerms,
    set?: BackendListener,
  ) {
    super(connection, options, set);
    this.#terms = terms;
  }

  get engine(): EngineServices {
    return this.connection.engine;
  }

  get isConfidential(): boolean {
    return this.connection.isConfidential;
  }

  get closed(): boolean {
    return this.connection.closed;
  }

  get waitForReady(): boolean {
    return this.connection.waitForReady;
  }

  /** Lanes stand for each other. */
  get hasOthers(): boolean {
    return this.#lanes !== undefined;
  }

  /** Those to lanes included. */
  override get inFlight(): number {
    return super.inFlight + (this.#lanes?.inFlight ?? 0);
  }

  override get streams(): number {
    return super.streams + (this.#lanes?.streams ?? 0);
  }

  /** Those with lanes included. */
  override get exchanges(): readonly Exchange[] {
    return [...super.exchanges, ...(this.#lanes?.exchanges ?? [])];
  }

  override get idle(): boolean {
    return super.idle && (this.#lanes?.idle ?? true);
  }

  override get services(): string[] {
    return this.#lanes?.services ?? super.services;
  }

  get laneStats(): readonly BackendStats[] {
    return this.#lanes?.stats ?? [];
  }

  /**
   * False while it has lanes and all of them are down: it would look idle, and its calls would fail at once. A lane
   * that is announced and tried for the first time counts: a server that has just come is no worse than others.
   */
  override get takesCalls(): boolean {
    const lanes = this.#lanes;
    if (lanes === undefined) return true;
    return this.#announced.some(({ url, incarnation }) =>
      lanes.takesCalls(url, incarnation === 0n ? "now" : "soon"),
    );
  }

  /** With lanes it is unwell where none of its lanes serves the service. */
  override unwellBecause(service: string): string | undefined {
    return super.unwellBecause(service) ?? this.#lanes?.unwellBecause(service);
  }

  /** With lanes it has what any of its lanes has. */
  override lackOf(service: string, method: string): string {
    return this.#lanes === undefined ? super.lackOf(service, method) : this.#lanes.lackOf(service, method);
  }

  /** No call would find out that a dispatcher was lost, and it announces the changes of its lanes. */
  protected override get isKept(): boolean {
    return super.isKept || this.#lanes !== undefined;
  }

  override session(call: OutgoingCall, input: unknown): CallSession | Promise<CallSession> {
    if (this.#lanes !== undefined) return this.#lanes.session(call, input);
    const { calls } = this.connection;
    // The usual way, without the questions of the connection: the session is open, and nobody drains.
    if (calls?.takesNoCalls === false && this.engine.gate.calls) return calls;
    const session = this.connection.session(call);
    if (!(session instanceof Promise)) return session;
    // The welcome may announce lanes.
    return session.then((opened) => this.#lanes?.session(call, input) ?? opened);
  }

  override hasLane(url: string): boolean {
    return this.#lanes?.has(url) ?? false;
  }

  /** The engine of the lane that is announced at this URL; 0 while there is none. */
  incarnationAt(url: string): bigint {
    return this.#announced.find((lane) => lane.url === url)?.incarnation ?? 0n;
  }

  /**
   * The engine that announced the former lanes knows for certain that those it does not announce any more have ended.
   * Another engine at its address knows nothing of them.
   */
  override onLanes(lanes: readonly LaneAddress[], sameEngine: boolean): void {
    const before = this.#announced;
    this.#announced = this.#reachable(lanes);
    if (lanes.length === 0) {
      // Listeners of the end of the lanes find a server that takes calls itself.
      const ended = this.#lanes;
      this.#lanes = undefined;
      ended?.close();
      return;
    }
    this.#lanes ??= this.#newSet();
    this.#lanes.setUrls(this.#announced.map(({ url }) => url));
    const living = new Set(this.#announced.map(({ incarnation }) => incarnation));
    for (const { url, incarnation } of before)
      if (incarnation !== 0n && !living.has(incarnation)) this.#lanes.onGone(url, incarnation, sameEngine);
    const known = new Set(before.map(({ incarnation }) => incarnation));
    for (const { url, incarnation } of this.#announced)
      if (incarnation !== 0n && !known.has(incarnation)) this.#lanes.tryNow(url).catch(() => {});
  }

  override onClosed(reason: RpcError): void {
    super.onClosed(reason);
    this.#lanes?.close(reason);
    this.retried.close(reason);
  }

  /**
   * Connects to the server and its lanes. Resolves when all lanes with an engine have been tried, or the time is over,
   * and one is connected: so the first calls find them all. While none is connected, lanes that are being replaced are
   * waited for.
   *
   * @throws RpcError of the connection, or `unavailable` when no lane can be reached.
   */
  async reach(timeoutMs: number): Promise<void> {
    const { clock } = this.engine;
    const untilMs = clock.now() + timeoutMs;
    await this.connection.session();
    const lanes = this.#lanes;
    if (lanes === undefined) return;
    let failed: unknown;
    const tries = this.#announced.filter(hasEngine).map(({ url }) =>
      lanes.tryNow(url).catch((error) => {
        failed = error;
      }),
    );
    await this.#atMost(untilMs - clock.now(), Promise.all(tries));
    while (!lanes.isReached) {
      const leftMs = untilMs - clock.now();
      if (leftMs <= 0 || lanes.closed || this.#announced.every(hasEngine)) throw this.#unreached(failed);
      await this.#atMost(Math.min(leftMs, lookMs));
      // Lanes that are back are tried as soon as they are announced. Without an announcement they are tried now and
      // then.
      await this.#atMost(
        untilMs - clock.now(),
        Promise.any(this.#announced.map(({ url }) => lanes.tryNow(url))),
      );
    }
  }

  #newSet(): BackendSet {
    const { options, connect } = this.#terms;
    const backendAt = (url: string, set: BackendListener) => new Backend(connect(url, this), options, set);
    return new BackendSet(this.engine, `the lanes of ${this.name}`, options, backendAt, this);
  }

  /** Until the work is done, however it ends, or the time is over. */
  #atMost(ms: number, work?: Promise<unknown>): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.engine.clock.timer(Math.max(1, ms), resolve);
      const done = () => {
        cancel();
        resolve();
      };
      work?.then(done, done);
    });
  }

  #unreached(cause: unknown): RpcError {
    const why = cause instanceof Error ? `: ${cause.message}` : "";
    return new RpcError({
      code: "unavailable",
      message: `no lane of ${this.name} can be reached${why}`,
      cause,
    });
  }

  /** As they can be reached from here: a lane that listens on every interface is reached at the dispatcher's host. */
  #reachable(lanes: readonly LaneAddress[]): LaneAddress[] {
    const dispatcher = parseUrl(this.name);
    return lanes.map(({ url, incarnation }) => {
      const lane = parsed(url);
      if (lane?.scheme !== dispatcher.scheme)
        throw new RpcError({
          code: "internal",
          message: `${this.name} announces a lane at ${url}, which is not a ${dispatcher.scheme} address`,
          origin: "remote",
        });
      const { scheme, host, port } = lane;
      const isEverywhere = hasHosts(scheme) && isWildcard(host);
      return { url: isEverywhere ? formatHostUrl(scheme, dispatcher.host, port) : url, incarnation };
    });
  }
}

/** The time between tries of lanes that are being replaced, while no lane serves. */
const lookMs = 50;

const hasEngine = ({ incarnation }: LaneAddress): boolean => incarnation !== 0n;

function parsed(url: string): FabricUrl | undefined {
  try {
    return parseUrl(url);
  } catch {
    return undefined;
  }
}
