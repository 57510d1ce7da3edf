import type { RpcCode } from "../base/errors/code.ts";
import { closedError, RpcError } from "../base/errors/rpc-error.ts";
import { defaultWindow, type WindowStats } from "../base/flow/in-flight-window.ts";
import { Listeners } from "../base/observe/listeners.ts";
import type { OutgoingCall } from "../call/outgoing-call.ts";
import { RetriedCalls } from "../call/retried-calls.ts";
import type { CallSession, SessionSource } from "../client/session-source.ts";
import { parseUrl } from "../fabric/libfabric/url.ts";
import type { Identity } from "../security/identity.ts";
import { isSealed, staysOnHost } from "../security/securable.ts";
import { Exchange } from "../session/calls/exchange.ts";
import type { WaitingLevel } from "../session/calls/waiting-calls.ts";
import type { SessionObserver } from "../session/connection/context.ts";
import { drainingError } from "../session/connection/drain-gate.ts";
import type { EngineServices } from "../session/connection/engine-services.ts";
import type { Session } from "../session/connection/session.ts";
import type { LaneAddress } from "../wire/handshake.ts";
import type { BackendStats, PeerEvents, PeerState, PeerStats } from "./peer-state.ts";
import type { ResolvedReconnectOptions } from "./reconnect.ts";
import { type ReconnectContext, Reconnector } from "./reconnector.ts";

/** The worker lanes of a peer, as the connection to their dispatcher sees them: its calls go there. */
export interface LaneRouting {
  readonly callsOut: number;
  readonly callsWaiting: number;
  /** No calls are open, in either direction; control requests count. */
  readonly idle: boolean;
  /** Whether any lane can take calls, or is announced and tried for the first time. */
  readonly takesCalls: boolean;
  /** Names of the services of the first lane that is connected. */
  readonly services: string[] | undefined;
  readonly stats: readonly BackendStats[];
  session(call: OutgoingCall, input: unknown): CallSession | Promise<CallSession>;
  /** Whether a lane is reached at this URL. */
  has(url: string): boolean;
  /**
   * Resolves when all announced lanes have been tried and one is connected. Rejects with `unavailable` when none can
   * be.
   */
  reached(timeoutMs: number): Promise<void>;
  /** The dispatcher announces its lanes anew. `sameEngine`: the engine that announced them before. */
  onLanes(lanes: readonly LaneAddress[], sameEngine: boolean): void;
  close(reason?: RpcError): void;
}

/** Is told what a backend must know of its connection beyond its events. */
export interface ConnectionListener {
  /** `takesCalls` may have changed. */
  onLanesChanged(): void;
  /** A call that had left has ended. */
  onSettled(code: RpcCode | "ok"): void;
}

/** What a connection is made with. */
export interface ConnectionOptions {
  /** Opens the next session, in one try. */
  readonly open: (connection: PeerConnection) => Promise<Session>;
  readonly reconnect: ResolvedReconnectOptions;
  readonly window?: { readonly maxWaiting: number };
  /** Reaches the lanes that the peer announces. Undefined: announced lanes are ignored, as by a lane itself. */
  readonly openLanes?: (dispatcher: PeerConnection, lanes: readonly LaneAddress[]) => LaneRouting;
  readonly onClosed?: (connection: PeerConnection) => void;
  /** Where the same engine can be reached besides. `open` tries them in order. */
  readonly otherUrls?: readonly string[];
}

/**
 * The connection to the engine at one URL: it owns the session, opens the next when that is lost, and knows how the
 * peer fares. Clients get their sessions from it. Where the peer announces worker lanes, calls go to these, and the
 * session with the peer itself stays open: changes of the lanes are announced on it.
 */
export class PeerConnection implements SessionSource, SessionObserver, ReconnectContext {
  /** Where the engine can be reached, the best first. */
  readonly urls: readonly string[];
  /** Where it is connected, or was last; the first one before that. */
  url: string;
  readonly engine: EngineServices;
  readonly retried = new RetriedCalls();
  /** The backend that this connection is of. */
  listener: ConnectionListener | undefined;
  readonly #options: ConnectionOptions;
  readonly #reconnector: Reconnector;
  readonly #listeners = new Listeners<PeerEvents>();
  #session: Session | undefined;
  /** The calls on it. */
  #exchange: Exchange | undefined;
  #lanes: LaneRouting | undefined;
  #suspected = false;
  /** The incarnation of the last session; undefined before the first. */
  #lastIncarnation: bigint | undefined;
  /** Who its last session was with; undefined before the first. */
  #lastIdentity: Identity | undefined;
  /** Why calls fail once it is closed. */
  #closeReason: RpcError | undefined;

  constructor(url: string, engine: EngineServices, options: ConnectionOptions) {
    this.urls = [url, ...(options.otherUrls ?? [])];
    this.url = url;
    this.engine = engine;
    this.#options = options;
    const { open, reconnect, window = defaultWindow } = options;
    this.#reconnector = new Reconnector(this, () => open(this), reconnect, window);
  }

  get name(): string {
    return this.url;
  }

  get isConfidential(): boolean {
    return this.urls.every((url) => {
      const { scheme } = parseUrl(url);
      return staysOnHost(scheme) || isSealed(this.engine.security, scheme);
    });
  }

  get state(): PeerState {
    if (this.closed) return "closed";
    if (this.#session?.state === "open") {
      if (this.#session.remoteState.drains) return "draining";
      return this.#suspected ? "suspect" : "connected";
    }
    return this.#reconnector.underWay ? "connecting" : "lost";
  }

  get closed(): boolean {
    return this.#closeReason !== undefined;
  }

  /** Of the session that is open. */
  get incarnation(): bigint | undefined {
    return this.current?.remote?.incarnation;
  }

  get identity(): Identity | undefined {
    return this.current?.identity;
  }

  /** Who the peer was when it was last connected. */
  get lastIdentity(): Identity | undefined {
    return this.#lastIdentity;
  }

  get agent(): string {
    return this.#session?.remote?.agent ?? "";
  }

  get services(): string[] {
    return this.#lanes?.services ?? this.#session?.methods.names() ?? [];
  }

  /** Calls that have no terminal frame yet, those to lanes included, without control requests. */
  get callsOut(): number {
    const own = this.#exchange?.outgoing.usersSize ?? 0;
    return this.#lanes === undefined ? own : this.#lanes.callsOut + own;
  }

  get callsWaiting(): number {
    const own = this.#exchange?.outgoing.waiting.size ?? 0;
    return this.#lanes === undefined ? own : this.#lanes.callsWaiting + own;
  }

  /** The session that is open, also while the peer drains: control requests go on then. */
  get current(): Exchange | undefined {
    return this.#session?.state === "open" ? this.#exchange : undefined;
  }

  get waitForReady(): boolean {
    return this.#reconnector.waitForReady;
  }

  /** Lanes stand for each other. */
  get hasOthers(): boolean {
    return this.#lanes !== undefined;
  }

  /** False while it has lanes and all of them are down: it would look idle, and its calls would fail at once. */
  get takesCalls(): boolean {
    return this.#lanes?.takesCalls ?? true;
  }

  /** No calls are open, in either direction, those to lanes included; control requests count. */
  get idle(): boolean {
    return (this.#exchange?.openWork ?? 0) === 0 && (this.#lanes?.idle ?? true);
  }

  session(call?: OutgoingCall, input?: unknown): CallSession | Promise<CallSession> {
    if (this.#lanes !== undefined && call !== undefined) return this.#lanes.session(call, input);
    const session = this.#session;
    if (!this.engine.gate.calls && call?.again !== true) throw drainingError("this engine", "local");
    const open = session !== undefined && session.state === "open";
    // A process that drains still answers for what it has begun.
    if (open && (!session.remoteState.drains || call?.boundTo?.incarnation === incarnationOf(session)))
      return (this.#exchange as Exchange).outgoing;
    if (this.#closeReason !== undefined) throw this.#closeReason;
    if (open && (call === undefined || !this.waitForReady)) throw drainingError(this.url, "local");
    const opening = this.#reconnector.session(call);
    if (call === undefined || this.#options.openLanes === undefined) return opening;
    return opening.then((opened) => this.#lanes?.session(call, input) ?? opened);
  }

  /** Resolves when its lanes, if it has any, have been tried and one is connected. Rejects with `unavailable`. */
  async lanesReached(timeoutMs: number): Promise<void> {
    await this.#lanes?.reached(timeoutMs);
  }

  /** Whether one of its lanes is reached at this URL. */
  hasLane(url: string): boolean {
    return this.#lanes?.has(url) ?? false;
  }

  on<E extends keyof PeerEvents>(event: E, listener: (detail: PeerEvents[E]) => void): () => void {
    return this.#listeners.on(event, listener);
  }

  stats(): PeerStats {
    const { outgoing, incoming } = this.#exchange ?? {};
    return {
      state: this.state,
      callsOut: outgoing?.size ?? 0,
      callsIn: incoming?.size ?? 0,
      queuedBytes: this.#session?.outbox.queuedBytes ?? 0,
      callsWaiting: outgoing?.waiting.size ?? 0,
      waitingBytes: outgoing?.waiting.bytes ?? 0,
      waiting: outgoing?.waiting.levels() ?? noneWaiting,
      window: outgoing?.state === "open" ? outgoing.window.stats() : noWindow,
      lanes: this.#lanes?.stats ?? [],
    };
  }

  close(reason: RpcError = closedError(this.url)): void {
    if (this.closed) return;
    this.#closeReason = reason;
    this.#lanes?.close(reason);
    // First, so that the peer learns that its caller is gone: a stream that ended before would send a cancellation.
    this.#session?.end(reason);
    this.retried.close(reason);
    this.#reconnector.close(reason);
    this.#options.onClosed?.(this);
    this.#listeners.tell("closed", {});
    this.#listeners.clear();
  }

  // ---- told by the reconnector -----------------------------------------------------------------

  adopt(session: Session): CallSession {
    const exchange = session.part(Exchange);
    this.#session = session;
    this.#exchange = exchange;
    if (this.#closeReason !== undefined) session.end(this.#closeReason);
    // It may have ended while this promise was on its way.
    if (session.state !== "open") return exchange.outgoing;
    const incarnation = incarnationOf(session);
    const last = this.#lastIncarnation;
    this.#lastIdentity = session.identity;
    this.onLanes(session.remote?.lanes ?? [], last === incarnation);
    session.observer = this;
    this.#lastIncarnation = incarnation;
    if (last === undefined) this.#listeners.tell("connected", { incarnation });
    else this.#listeners.tell("back", { after: "lost", restarted: last !== incarnation, incarnation });
    return exchange.outgoing;
  }

  // ---- told by the session ---------------------------------------------------------------------

  onSettled(code: RpcCode | "ok"): void {
    this.listener?.onSettled(code);
  }

  onSuspect(phi: number, silentMs: number): void {
    this.#suspected = true;
    this.#listeners.tell("suspect", { phi, silentMs });
  }

  onTrusted(): void {
    this.#suspected = false;
    if (this.#session?.state === "open")
      this.#listeners.tell("back", {
        after: "suspect",
        restarted: false,
        incarnation: incarnationOf(this.#session),
      });
  }

  onDraining(): void {
    this.#listeners.tell("draining", {});
  }

  /**
   * Calls go to these lanes from now on, or to this peer itself when there are none.
   *
   * @throws RpcError for lanes at no address that can be reached from here.
   */
  onLanes(lanes: readonly LaneAddress[], sameEngine = true): void {
    const { openLanes } = this.#options;
    if (openLanes === undefined || this.closed) return;
    if (lanes.length === 0) {
      this.#lanes?.close();
      this.#lanes = undefined;
    } else if (this.#lanes === undefined) this.#lanes = openLanes(this, lanes);
    else this.#lanes.onLanes(lanes, sameEngine);
  }

  onEnded(reason: RpcError): void {
    this.#suspected = false;
    this.#reconnector.onSessionEnded();
    if (!this.closed) this.#listeners.tell("lost", { reason });
  }

  // ---- told by the dispatcher of this lane -----------------------------------------------------

  /** The engine of that incarnation is gone. `certain`: nothing of it touches this side's memory any more. */
  onGone(incarnation: bigint, certain: boolean): void {
    const session = this.#session;
    if (session?.remote?.incarnation !== incarnation) return;
    if (session.state === "ended") return certain ? session.onPeerGone() : undefined;
    const reason = new RpcError({
      code: "unavailable",
      message: `the engine at ${this.url} has ended`,
      origin: "fabric",
    });
    session.end(reason, { quiet: certain, certain });
  }
}

const none: WaitingLevel = { calls: 0, bytes: 0 };
const noneWaiting = { control: none, high: none, normal: none, low: none };
const noWindow: WindowStats = { limit: 0, floor: 0, credits: 0, toldWaitMs: 0 };

const incarnationOf = (session: Session): bigint => session.remote?.incarnation ?? 0n;
