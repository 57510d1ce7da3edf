import type { RpcCode } from "../base/errors/code.ts";
import type { RpcError } from "../base/errors/rpc-error.ts";
import type { Clock } from "../base/time/clock.ts";
import type { OutgoingCall } from "../call/outgoing-call.ts";
import type { CallSession } from "../client/session-source.ts";
import type { ResolvedBalanceOptions } from "./connect-options.ts";
import { Outlier } from "./outlier.ts";
import type { ConnectionListener } from "./peer-connection.ts";
import type { BackendStats, PeerEvents, PeerState } from "./peer-state.ts";
import { type Candidate, slowStartWeight } from "./policy.ts";
import { backoffMs } from "./reconnect.ts";

/** What a backend needs of its connection. */
export interface BackendConnection {
  readonly url: string;
  readonly state: PeerState;
  readonly incarnation: bigint | undefined;
  /** The session that is open, also while the peer drains. */
  readonly current: unknown;
  readonly services: string[];
  readonly callsOut: number;
  readonly callsWaiting: number;
  readonly idle: boolean;
  readonly takesCalls: boolean;
  listener: ConnectionListener | undefined;
  session(call?: OutgoingCall, input?: unknown): CallSession | Promise<CallSession>;
  hasLane(url: string): boolean;
  on<E extends keyof PeerEvents>(event: E, listener: (detail: PeerEvents[E]) => void): () => void;
  onGone(incarnation: bigint, certain: boolean): void;
  close(reason?: RpcError): void;
}

/** Is told how a backend fares. */
export interface BackendListener {
  /** Something changed that decides who is ready. */
  onBackendChanged(): void;
  /** A call to it that had left has ended. */
  onBackendSettled(backend: Backend, code: RpcCode | "ok"): void;
}

/**
 * One backend of a balanced peer, or one lane of a peer. It is connected again when it is lost, until it is retired.
 */
export class Backend implements Candidate, ConnectionListener {
  readonly connection: BackendConnection;
  readonly outlier: Outlier;
  readonly #options: ResolvedBalanceOptions;
  readonly #clock: Clock;
  readonly #listener: BackendListener;
  readonly #offs: (() => void)[];
  #attempt = 0;
  #cancelTry: (() => void) | undefined;
  #connectedMs = Number.NEGATIVE_INFINITY;
  #retired = false;

  constructor(
    connection: BackendConnection,
    options: ResolvedBalanceOptions,
    clock: Clock,
    listener: BackendListener,
  ) {
    this.connection = connection;
    this.#options = options;
    this.#clock = clock;
    this.#listener = listener;
    this.outlier = new Outlier(options.ejection);
    connection.listener = this;
    const changed = () => listener.onBackendChanged();
    const arrived = () => {
      this.#attempt = 0;
      this.#connectedMs = clock.now();
      changed();
    };
    this.#offs = [
      connection.on("connected", arrived),
      connection.on("back", ({ after }) => (after === "lost" ? arrived() : changed())),
      connection.on("suspect", changed),
      connection.on("draining", changed),
      connection.on("lost", () => {
        changed();
        this.#tryLater();
      }),
    ];
  }

  get name(): string {
    return this.connection.url;
  }

  get inFlight(): number {
    return this.connection.callsOut + this.connection.callsWaiting;
  }

  get weight(): number {
    const { slowStartMs } = this.#options;
    return slowStartMs === 0 ? 1 : slowStartWeight(this.#clock.now(), this.#connectedMs, slowStartMs);
  }

  /** Connected, suspected or not; not while it drains. */
  get isOpen(): boolean {
    const { state } = this.connection;
    return state === "connected" || state === "suspect";
  }

  /** It is being connected to, and no try has failed since it came or was last connected. */
  get isFirstTry(): boolean {
    return this.#attempt === 0 && this.connection.state === "connecting";
  }

  stats(nowMs: number): BackendStats {
    const { url, state, callsOut, callsWaiting } = this.connection;
    return { url, state, callsOut, callsWaiting, ejected: this.outlier.ejected(nowMs), weight: this.weight };
  }

  onLanesChanged(): void {
    this.#listener.onBackendChanged();
  }

  onSettled(code: RpcCode | "ok"): void {
    this.#listener.onBackendSettled(this, code);
  }

  /**
   * Connects now, and goes on trying in the background until it is connected or retired. Rejects with the error of the
   * first try.
   */
  async connect(): Promise<void> {
    this.#cancelTry?.();
    this.#cancelTry = undefined;
    if (this.#retired) return;
    try {
      const session = await this.connection.session();
      // It may have ended before anybody listened, so nobody is told of its loss.
      if (session.state !== "open") this.#tryLater();
    } catch (error) {
      this.#tryLater();
      throw error;
    }
  }

  #tryLater(): void {
    if (this.#retired || this.#cancelTry !== undefined) return;
    this.#cancelTry = this.#clock.timer(
      backoffMs(this.#attempt++, this.#options.reconnect),
      () => void this.connect().catch(() => {}),
      true,
    );
    this.#listener.onBackendChanged();
  }

  /** It gets no new calls, and is closed when those in flight have ended. */
  retire(onDone: () => void): void {
    this.leave();
    const closeIfDone = (): void => {
      // Control requests count here: what has been borrowed from it, or by it, is returned first.
      if (this.connection.idle) {
        this.connection.close();
        onDone();
      } else this.#cancelTry = this.#clock.timer(retiredLookMs, closeIfDone, true);
    };
    closeIfDone();
  }

  close(reason?: RpcError): void {
    this.leave();
    this.connection.close(reason);
  }

  /** Stops trying and listening; the connection stays as it is. */
  leave(): void {
    this.#retired = true;
    this.#cancelTry?.();
    this.#cancelTry = undefined;
    for (const off of this.#offs) off();
    this.connection.listener = undefined;
    this.#listener.onBackendChanged();
  }
}

/** The time between looks at a retired backend, until its last call has ended. */
const retiredLookMs = 50;
