import { closedError, RpcError } from "../base/errors/rpc-error.ts";
import { defaultWindow, type WindowStats } from "../base/flow/in-flight-window.ts";
import { Listeners } from "../base/observe/listeners.ts";
import type { Complete } from "../base/options/options.ts";
import { Backoff, backoffMs } from "../base/time/backoff.ts";
import type { OutgoingCall } from "../call/outgoing-call.ts";
import { RetriedCalls } from "../call/retried-calls.ts";
import type { SessionSource } from "../client/session-source.ts";
import { parseUrl } from "../fabric/libfabric/url.ts";
import type { Identity } from "../security/identity.ts";
import { isSealed, staysOnHost } from "../security/security-options.ts";
import { Exchange } from "../session/calls/exchange.ts";
import type { CallEndListener, OutgoingCalls } from "../session/calls/outgoing-calls.ts";
import { trafficOf } from "../session/calls/traffic.ts";
import type { EngineServices } from "../session/connection/engine-services.ts";
import type { Session } from "../session/connection/session.ts";
import type { PeerObserver } from "../session/liveness/watched-session.ts";
import { drainingError } from "../session/opening/end-reasons.ts";
import { isNewer, type ToldHealth } from "../wire/handshake.ts";
import type { ReconnectOptions } from "./connect-options.ts";
import type { PeerEvents, PeerState, PeerStats } from "./peer-state.ts";

/** Events for the backend of a connection, beyond the connection's events. */
export interface ConnectionListener extends CallEndListener {
  /** The engine has reported its services, or which of its services do not serve now. */
  onChanged(): void;
  /** The connection has been closed; its session has ended. */
  onClosed(): void;
}

/** The parts of a connection. */
export interface ConnectionOptions {
  /** Opens the next session, in one try. */
  readonly open: (connection: PeerConnection) => Promise<Session>;
  readonly reconnect: Complete<ReconnectOptions>;
  readonly window?: { readonly maxWaiting: number } | undefined;
  readonly onClosed?: ((connection: PeerConnection) => void) | undefined;
  /** Further URLs of the same engine. `open` tries them in order. */
  readonly otherUrls?: readonly string[] | undefined;
}

/**
 * The connection to one engine: it owns the session, opens the next when that is lost, and knows the state of the peer.
 * It does not know other backends.
 */
export class PeerConnection implements SessionSource, PeerObserver {
  /** The URLs of the engine, the best first. */
  readonly urls: readonly string[];
  /** The URL of the present connection, or of the last one. Before the first connection: the first of `urls`. */
  url: string;
  readonly engine: EngineServices;
  readonly retried = new RetriedCalls();
  readonly hasOthers = false;
  /** Whether tries are repeated while calls wait. */
  readonly waitForReady: boolean;
  /** The backend that this connection belongs to. Undefined for a peer of its own. */
  listener: ConnectionListener | undefined;
  /** The outgoing calls of its last session, which may have ended. Undefined before the first. */
  calls: OutgoingCalls | undefined;
  readonly #options: ConnectionOptions;
  readonly #listeners = new Listeners<PeerEvents>();
  /** Its last session, which may have ended. Undefined before the first. */
  #session: Session | undefined;
  /** The calls on it. */
  #exchange: Exchange | undefined;
  #suspected = false;
  /** The engine's last report about its services. Undefined: all serve. */
  #health: ToldHealth | undefined;
  /** The incarnation of the last session; undefined before the first. */
  #lastIncarnation: bigint | undefined;
  /** The error of calls after the connection is closed. */
  #closeReason: RpcError | undefined;
  // The next session, and the calls that wait for it.
  readonly #backoff: Backoff;
  readonly #maxWaiting: number;
  /** Calls that wait for a session, and some that have stopped waiting. */
  readonly #waiting = new Set<OutgoingCall>();
  #forgotMs = Number.NEGATIVE_INFINITY;
  #opening: Promise<OutgoingCalls> | undefined;
  #giveUp: ((reason: RpcError) => void) | undefined;
  #onSessionEnded: (() => void) | undefined;

  constructor(url: string, engine: EngineServices, options: ConnectionOptions) {
    this.urls = [url, ...(options.otherUrls ?? [])];
    this.url = url;
    this.engine = engine;
    this.#options = options;
    this.waitForReady = options.reconnect.whileLost === "wait";
    this.#backoff = new Backoff(engine.clock, true);
    this.#maxWaiting = mostWaiting(options.window ?? defaultWindow);
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
    return this.#opening === undefined ? "lost" : "connecting";
  }

  get closed(): boolean {
    return this.#closeReason !== undefined;
  }

  /** The incarnation of the engine in the open session. */
  get incarnation(): bigint | undefined {
    return this.current?.remote?.incarnation;
  }

  get identity(): Identity | undefined {
    return this.current?.identity;
  }

  get agent(): string {
    return this.#session?.remote?.agent ?? "";
  }

  get services(): string[] {
    return this.#session?.methods.names() ?? [];
  }

  /**
   * The reason why a service does not serve there, or "" without a reason. Undefined when it serves, or nothing is
   * known.
   */
  unhealthyReason(service: string): string | undefined {
    for (const [name, reason] of this.#health?.notServing ?? [])
      if (name === "" || name === service) return reason;
    return undefined;
  }

  /** What the engine lacks for a method. "" when it serves the method, or is not connected. */
  lackOf(service: string, method: string): string {
    return this.current === undefined ? "" : (this.#session?.methods.lackOf(service, method) ?? "");
  }

  /**
   * Users' calls on its last session, without streams that were sent. Calls that wait for a place in its window count.
   */
  get inFlight(): number {
    const { calls } = this;
    return calls === undefined ? 0 : calls.usersSize - calls.streams + calls.waiting.size;
  }

  /** Users' streams on its last session that were sent. */
  get streams(): number {
    return this.calls?.streams ?? 0;
  }

  /** State of the peer, and the counted calls of its last session. */
  stats(): PeerStats {
    const { calls, state } = this;
    const traffic = trafficOf(this.#exchange === undefined ? [] : [this.#exchange]);
    const window = calls?.state === "open" ? calls.window.stats() : noWindow;
    const notServing = this.#health?.notServing.map(([service]) => service) ?? [];
    return { state, ...traffic, window, notServing };
  }

  /** The open session, also while the peer drains: control requests continue then. */
  get current(): Exchange | undefined {
    return this.#session?.state === "open" ? this.#exchange : undefined;
  }

  /** No calls are open, in either direction; control requests count. */
  get idle(): boolean {
    return (this.#exchange?.openWork ?? 0) === 0;
  }

  /**
   * The open session, at once; or a promise of the next one, which all callers meanwhile share. `call` is the call that
   * wants it: its end ends the wait. Throws or rejects with RpcError: `resource_exhausted` when no more calls may wait.
   */
  session(call?: OutgoingCall): OutgoingCalls | Promise<OutgoingCalls> {
    // The usual case first: the session is open, and neither side drains.
    if (this.calls?.takesNoCalls === false && this.engine.gate.calls) return this.calls;
    const session = this.#session;
    if (!this.engine.gate.calls && call?.again !== true) throw drainingError("this engine", "local");
    const open = session !== undefined && session.state === "open";
    if (this.calls?.takes(call)) return this.calls;
    if (this.#closeReason !== undefined) throw this.#closeReason;
    if (open && (call === undefined || !this.waitForReady)) throw drainingError(this.url, "local");
    if (call !== undefined) this.#letWait(call);
    this.#opening ??= this.#reopen();
    return this.#opening;
  }

  on<E extends keyof PeerEvents>(event: E, listener: (detail: PeerEvents[E]) => void): () => void {
    return this.#listeners.on(event, listener);
  }

  close(reason: RpcError = closedError(this.url)): void {
    if (this.closed) return;
    this.#closeReason = reason;
    // First, so that the peer learns that its caller is gone. A stream that ended before would send a cancellation.
    this.#session?.end(reason);
    this.listener?.onClosed();
    this.#giveUp?.(reason);
    this.#backoff.endAll();
    this.retried.close(reason);
    this.#options.onClosed?.(this);
    this.#listeners.tell("closed", {});
    this.#listeners.clear();
  }

  // ---- the next session --------------------------------------------------------------------------

  /** The limit for a session's window also applies to calls that wait for a session. */
  #letWait(call: OutgoingCall): void {
    if (this.#waiting.size >= this.#maxWaiting) this.#forgetNowAndThen();
    if (this.#waiting.size >= this.#maxWaiting) throw tooManyWait(this.#waiting.size, this.url);
    this.#waiting.add(call);
  }

  /** Not on every call while the limit is reached: there may be no settled call. */
  #forgetNowAndThen(): void {
    const nowMs = this.engine.clock.now();
    if (nowMs < this.#forgotMs + forgetEveryMs) return;
    this.#forgotMs = nowMs;
    this.#forgetSettled();
  }

  /** Forgets calls that their callers have given up. */
  #forgetSettled(): void {
    for (const call of this.#waiting) if (call.settled) this.#waiting.delete(call);
  }

  /** Settles at the latest when the connection is closed: calls must not wait for a peer that does not answer. */
  #reopen(): Promise<OutgoingCalls> {
    return new Promise<OutgoingCalls>((resolve, reject) => {
      this.#giveUp = reject;
      // Cleared first: a call that tries again at once must not receive the old attempt.
      const clear = () => {
        this.#opening = undefined;
        this.#giveUp = undefined;
        this.#waiting.clear();
      };
      this.#openWithRetries().then(
        (session) => {
          clear();
          try {
            resolve(this.#adopt(session));
          } catch (error) {
            session.end(error as RpcError);
            reject(error);
          }
        },
        (error) => {
          clear();
          reject(error);
        },
      );
    });
  }

  /** Tries until there is a session. Tries once when no call waits for more. */
  async #openWithRetries(): Promise<Session> {
    for (let attempt = 0; ; attempt++) {
      await this.#drained();
      try {
        return await this.#options.open(this);
      } catch (error) {
        if (!mayPass(error) || !this.#isAwaited()) throw error;
        await this.#backoff.pause(backoffMs(attempt, this.#options.reconnect));
        if (!this.#isAwaited()) throw error;
      }
    }
  }

  /** A draining peer receives no other hello while it has a session with this engine. */
  #drained(): Promise<void> | undefined {
    if (this.current === undefined) return undefined;
    return new Promise((resolve) => {
      this.#onSessionEnded = resolve;
    });
  }

  /** Whether a waiting call justifies another try. */
  #isAwaited(): boolean {
    if (this.closed || !this.waitForReady || !this.engine.gate.calls) return false;
    this.#forgetSettled();
    return this.#waiting.size > 0;
  }

  /** Takes the opened session, and returns its interface for calls. */
  #adopt(session: Session): OutgoingCalls {
    const exchange = session.part(Exchange);
    this.#session = session;
    this.#exchange = exchange;
    this.calls = exchange.outgoing;
    this.calls.listener = this.listener;
    if (this.#closeReason !== undefined) session.end(this.#closeReason);
    // The session may have ended before this promise settled.
    if (session.state !== "open") return exchange.outgoing;
    const incarnation = incarnationOf(session);
    const last = this.#lastIncarnation;
    this.#health = session.remote?.health;
    session.observer = this;
    this.#lastIncarnation = incarnation;
    if (last === undefined) this.#listeners.tell("connected", { incarnation });
    else this.#listeners.tell("back", { after: "lost", restarted: last !== incarnation, incarnation });
    return exchange.outgoing;
  }

  // ---- called by the session ---------------------------------------------------------------------

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

  onHealth(health: ToldHealth): void {
    if (this.closed || !isNewer(health, this.#health)) return;
    this.#health = health;
    this.listener?.onChanged();
    this.#listeners.tell("health", {});
  }

  onServices(): void {
    this.listener?.onChanged();
  }

  onEnded(reason: RpcError): void {
    this.#suspected = false;
    this.#onSessionEnded?.();
    if (!this.closed) this.#listeners.tell("lost", { reason });
  }

  // ---- called by the set that it belongs to ------------------------------------------------------

  /** The engine of that incarnation has certainly ended: it can no longer touch this side's memory. */
  onGone(incarnation: bigint): void {
    const session = this.#session;
    if (session?.remote?.incarnation !== incarnation) return;
    if (session.state === "ended") return session.onPeerGone();
    const reason = new RpcError({
      code: "unavailable",
      message: `the engine at ${this.url} has ended`,
      origin: "fabric",
    });
    session.end(reason, { quiet: true, certain: true });
  }
}

const noWindow: WindowStats = { limit: 0, credits: 0 };

const incarnationOf = (session: Session): bigint => session.remote?.incarnation ?? 0n;

const forgetEveryMs = 100;

/**
 * Whether another try may succeed: no engine answered, or there was no room. The protocol of a peer does not change.
 */
export function mayPass(error: unknown): boolean {
  return error instanceof RpcError && (error.retryable || error.code === "resource_exhausted");
}

/** Calls must be able to ask for a session, even when no call may wait for a place in one. */
const leastWaiting = 1024;

/** The most calls that may wait for a session to open: the same as in one session. */
export function mostWaiting({ maxWaiting }: { readonly maxWaiting: number }): number {
  return Math.max(maxWaiting, leastWaiting);
}

export function tooManyWait(waiting: number, name: string): RpcError {
  return new RpcError({
    code: "resource_exhausted",
    message: `${waiting} calls wait for a session with ${name}, the limit is reached`,
  });
}
