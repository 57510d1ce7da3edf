import type { OutgoingCall } from "../call/outgoing-call.ts";
import type { ClientOptions } from "../client/call-options.ts";
import { type Client, createClient } from "../client/client.ts";
import { RetriedCalls } from "../client/retried-calls.ts";
import type { SessionSource } from "../client/session-source.ts";
import type { AnyService } from "../contract/service.ts";
import { closedError } from "../errors/closed.ts";
import type { RpcCode } from "../errors/code.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Priority } from "../flow/priority.ts";
import { Listeners } from "../observe/listeners.ts";
import { defaultWindow, type WindowStats } from "../session/in-flight-window.ts";
import { drainingError } from "../session/intake.ts";
import type { Session } from "../session/session.ts";
import type { SessionHost } from "../session/session-host.ts";
import type { SessionObserver } from "../session/session-observer.ts";
import type { WaitingLevel } from "../session/waiting-calls.ts";
import type { LaneAddress } from "../wire/handshake.ts";
import type { PeerEvents } from "./peer-events.ts";
import type { GroupMemberStats } from "./peer-group.ts";
import { type LaneOpener, PeerLanes } from "./peer-lanes.ts";
import type { ResolvedReconnectOptions } from "./reconnect.ts";
import { type Reopened, Reopening } from "./reopening.ts";

/**
 *   connecting  a session is being opened
 *   connected   calls flow
 *   suspect     calls flow, but it has not answered for longer than it usually takes
 *   draining    it takes no new calls, they fail at once with `unavailable` or, with `whileLost: "wait"`, wait for its successor; those in flight go on
 *   lost        the last session ended without our doing; the next call opens another
 *   closed      by us, for good
 */
export type PeerState = "connecting" | "connected" | "suspect" | "draining" | "lost" | "closed";

/** What a peer holds at this moment. */
export interface PeerStats {
  readonly state: PeerState;
  /** Calls to it that have left and have no terminal frame yet. */
  readonly callsOut: number;
  /** Calls to it that wait for a place in the window. */
  readonly callsWaiting: number;
  /** About how many bytes their inputs hold. */
  readonly waitingBytes: number;
  /** The same by priority. */
  readonly waiting: Readonly<Record<Priority, WaitingLevel>>;
  readonly window: WindowStats;
  /** Calls from it that are being served. */
  readonly callsIn: number;
  /** Bytes of encoded frames that wait for room to be sent. */
  readonly queuedBytes: number;
  /** Its lanes, by number, where it has such: calls go to these, and what is counted above is of the session with the peer that speaks for them. */
  readonly lanes: readonly GroupMemberStats[];
}

/** Where a peer stands among others. */
export interface PeerPlace {
  /** How its lanes are reached, should it have any. */
  readonly lanes?: LaneOpener;
  /** Whose lane it is itself. */
  readonly front?: Peer;
}

/** How a peer opens its next session: the engine's business. */
export type SessionOpener = (peer: Peer) => Promise<Session>;

/**
 * Another engine, as this one reaches it. Made by `engine.connect`. When its session is lost the open calls fail with `unavailable`, and the next
 * call opens a new session: a restarted process at the same address is a new incarnation and never sees what was meant for the old one.
 */
export class Peer implements SessionSource, SessionObserver, Reopened, AsyncDisposable {
  readonly url: string;
  readonly host: SessionHost;
  /** @internal Whose lane it is. */
  readonly front: Peer | undefined;
  /** @internal */
  readonly retried = new RetriedCalls();
  readonly #onClosed: (peer: Peer) => void;
  #session: Session | undefined;
  readonly #reopening: Reopening;
  readonly #listeners = new Listeners<PeerEvents>();
  readonly #laneOpener: LaneOpener | undefined;
  #lanes: PeerLanes | undefined;
  /** @internal Whether `takesCalls` may have changed. */
  onLanesChanged = () => {};
  #suspected = false;
  /** The incarnation of the last session; undefined before the first. */
  #lastIncarnation: bigint | undefined;
  #closed = false;

  /** @internal */
  constructor(
    url: string,
    host: SessionHost,
    open: SessionOpener,
    onClosed: (peer: Peer) => void,
    reconnect: ResolvedReconnectOptions,
    window: { readonly maxWaiting: number } = defaultWindow,
    { lanes, front }: PeerPlace = {},
  ) {
    this.url = url;
    this.host = host;
    this.#onClosed = onClosed;
    this.#reopening = new Reopening(this, () => open(this), reconnect, window);
    this.#laneOpener = lanes;
    this.front = front;
  }

  get name(): string {
    return this.url;
  }

  get state(): PeerState {
    if (this.#closed) return "closed";
    if (this.#session?.state === "open") {
      if (this.#session.remoteState.drains) return "draining";
      return this.#suspected ? "suspect" : "connected";
    }
    return this.#reopening.underWay ? "connecting" : "lost";
  }

  /** A random number that the peer's engine drew when it opened; another value is another life. Undefined while not connected. */
  get incarnation(): bigint | undefined {
    return this.#session?.state === "open" ? this.#session.remote?.incarnation : undefined;
  }

  /** Calls to it that have no terminal frame yet, without what engines ask each other. */
  get callsOut(): number {
    const own = this.#session?.outgoing.usersSize ?? 0;
    return this.#lanes === undefined ? own : this.#lanes.group.callsOut + own;
  }

  /** Calls to it that wait for a place in the window. */
  get callsWaiting(): number {
    const own = this.#session?.outgoing.waiting.size ?? 0;
    return this.#lanes === undefined ? own : this.#lanes.group.callsWaiting + own;
  }

  /** @internal The session that is open, also while the peer drains: what engines ask each other goes on then. */
  get current(): Session | undefined {
    return this.#session?.state === "open" ? this.#session : undefined;
  }

  /** The peer's software and provider, for people. "" while not connected. */
  get agent(): string {
    return this.#session?.remote?.agent ?? "";
  }

  /** Names of the services it serves. */
  get services(): string[] {
    return this.#lanes?.group.services ?? this.#session?.methods.names() ?? [];
  }

  /**
   * A typed client of one of the peer's services. Costs nothing, holds nothing, and survives the peer's restarts. Whether the peer serves it
   * shows at the first call (`unimplemented`).
   */
  client<S extends AnyService>(service: S, options: ClientOptions = {}): Client<S> {
    return createClient(this, service, options);
  }

  /**
   * Calls `listener` at each such event, until the returned function is called or the peer is closed. It is called inside the engine's work: it may call, close and listen,
   * and what it throws is an uncaught exception.
   */
  on<E extends keyof PeerEvents>(event: E, listener: (detail: PeerEvents[E]) => void): () => void {
    return this.#listeners.on(event, listener);
  }

  /** @internal */
  get closed(): boolean {
    return this.#closed;
  }

  /** @internal */
  get patient(): boolean {
    return this.#reopening.patient;
  }

  /** @internal Resolves when its lanes, if it has any, have been tried and one is connected. Rejects with `unavailable` when none can be reached. */
  async lanesReached(timeoutMs: number): Promise<void> {
    await this.#lanes?.reached(timeoutMs);
  }

  /** @internal False while it has lanes and all of them are down: its calls would fail at once, and so it would look idle. */
  get takesCalls(): boolean {
    return this.#lanes?.serve ?? true;
  }

  /** @internal */
  hasLane(url: string): boolean {
    return this.#lanes?.group.has(url) ?? false;
  }

  /** @internal */
  session(call?: OutgoingCall, input?: unknown): Session | Promise<Session> {
    if (this.#lanes !== undefined && call !== undefined) return this.#lanes.group.session(call, input);
    const session = this.#session;
    if (!this.host.intake.calls && call?.again !== true) throw drainingError("this engine", "local");
    const open = session !== undefined && session.state === "open";
    // A process that drains still answers for what it has begun.
    if (open && (!session.remoteState.drains || call?.boundTo?.incarnation === incarnationOf(session)))
      return session;
    if (this.#closed) throw closedError(this.url);
    if (open && (call === undefined || !this.patient)) throw drainingError(this.url, "local");
    const opening = this.#reopening.session(call);
    if (call === undefined || this.#laneOpener === undefined) return opening;
    return opening.then((opened) => this.#lanes?.group.session(call, input) ?? opened);
  }

  /** @internal */
  onSettled(session: Session, code: RpcCode | "ok"): void {
    this.#lanes?.group.onSettled(session, code);
  }

  /** @internal */
  onSuspect(phi: number, silentMs: number): void {
    this.#suspected = true;
    this.#listeners.tell("suspect", { phi, silentMs });
  }

  /** @internal */
  onTrusted(): void {
    this.#suspected = false;
    if (this.#session?.state === "open")
      this.#listeners.tell("back", {
        after: "suspect",
        restarted: false,
        incarnation: incarnationOf(this.#session),
      });
  }

  /** @internal */
  onDraining(): void {
    this.#listeners.tell("draining", {});
  }

  /** @internal */
  onEnded(reason: RpcError): void {
    this.#suspected = false;
    this.#reopening.onSessionEnded();
    if (!this.#closed) this.#listeners.tell("lost", { reason });
  }

  /** @internal Calls go to the lanes from now on, to this peer itself where there are none. @throws RpcError for lanes that cannot be. */
  onLanes(lanes: readonly LaneAddress[], byTheSame = true): void {
    if (this.#laneOpener === undefined || this.#closed) return;
    if (lanes.length === 0) {
      this.#lanes?.close();
      this.#lanes = undefined;
    } else if (this.#lanes === undefined) this.#lanes = new PeerLanes(this, lanes, this.#laneOpener);
    else this.#lanes.onLanes(lanes, byTheSame);
  }

  /** @internal Its engine of that incarnation has ended. `certain`: says who must know, so nothing of it touches our memory any more. */
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

  /** @internal */
  adopt(session: Session): void {
    this.#session = session;
    if (this.#closed) return this.#end();
    // It may have ended while this promise was on its way.
    if (session.state !== "open") return;
    const incarnation = incarnationOf(session);
    const last = this.#lastIncarnation;
    this.onLanes(session.remote?.lanes ?? [], last === incarnation);
    session.observer = this;
    this.#lastIncarnation = incarnation;
    if (last === undefined) this.#listeners.tell("connected", { incarnation });
    else this.#listeners.tell("back", { after: "lost", restarted: last !== incarnation, incarnation });
  }

  stats(): PeerStats {
    const session = this.#session;
    return {
      state: this.state,
      callsOut: session?.callsOut ?? 0,
      callsIn: session?.callsIn ?? 0,
      queuedBytes: session?.queuedBytes ?? 0,
      callsWaiting: session?.outgoing.waiting.size ?? 0,
      waitingBytes: session?.outgoing.waiting.bytes ?? 0,
      waiting: session?.outgoing.waiting.levels() ?? noneWaiting,
      window: session?.state === "open" ? session.outgoing.window.stats() : noWindow,
      lanes: this.#lanes?.group.members ?? [],
    };
  }

  /** @internal No calls are open, in either direction; built-in requests count. */
  get idle(): boolean {
    const session = this.#session;
    const open = (session?.callsOut ?? 0) + (session?.callsIn ?? 0) + (session?.outgoing.waiting.size ?? 0);
    return open === 0 && (this.#lanes?.group.idle ?? true);
  }

  /** Ends the session, telling the peer; open calls fail with `unavailable`. Safe to call twice. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.retried.close(closedError(this.url));
    this.#lanes?.close();
    this.#end();
    this.#reopening.close();
    this.#onClosed(this);
    this.#listeners.tell("closed", {});
    this.#listeners.clear();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  #end(): void {
    this.#session?.end(closedError(this.url));
  }
}

const none: WaitingLevel = { calls: 0, bytes: 0 };
const noneWaiting = { control: none, high: none, normal: none, low: none };
const noWindow: WindowStats = { limit: 0, floor: 0, credits: 0, toldWaitMs: 0 };

const incarnationOf = (session: Session): bigint => session.remote?.incarnation ?? 0n;
