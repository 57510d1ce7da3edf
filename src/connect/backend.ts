import type { RpcCode } from "../base/errors/code.ts";
import type { RpcError } from "../base/errors/rpc-error.ts";
import type { Complete } from "../base/options/options.ts";
import { backoffMs } from "../base/time/backoff.ts";
import type { EjectionOptions, ResolvedBalanceOptions } from "./connect-options.ts";
import type { ConnectionListener, PeerConnection } from "./peer-connection.ts";
import type { BackendStats } from "./peer-state.ts";
import { type Candidate, slowStartWeight } from "./policy.ts";

/** Is notified of the events of a backend. */
export interface BackendListener {
  /** A change that may make the backend ready or unready. */
  onBackendChanged(): void;
  /** A call that had left for the backend has ended. */
  onBackendSettled(backend: Backend, code: RpcCode | "ok"): void;
}

/**
 * One member of a set of backends: a connection, and the state that decides whether calls go there. A lost backend is
 * connected again until it is retired.
 */
export class Backend implements Candidate, ConnectionListener {
  readonly connection: PeerConnection;
  readonly outlier: Outlier;
  readonly #options: Pick<ResolvedBalanceOptions, "ejection" | "reconnect" | "slowStartMs">;
  readonly #set: BackendListener;
  readonly #offs: (() => void)[];
  #attempt = 0;
  #cancelTry: (() => void) | undefined;
  #connectedMs = Number.NEGATIVE_INFINITY;
  #retired = false;

  /** `set`: the set of the backend. */
  constructor(
    connection: PeerConnection,
    options: Pick<ResolvedBalanceOptions, "ejection" | "reconnect" | "slowStartMs">,
    set: BackendListener,
  ) {
    this.connection = connection;
    this.#options = options;
    this.#set = set;
    this.outlier = new Outlier(options.ejection);
    connection.listener = this;
    const arrived = () => {
      this.#attempt = 0;
      this.#connectedMs = connection.engine.clock.now();
      this.onChanged();
    };
    this.#offs = [
      connection.on("connected", arrived),
      connection.on("back", ({ after }) => (after === "lost" ? arrived() : this.onChanged())),
      connection.on("suspect", () => this.onChanged()),
      connection.on("draining", () => this.onChanged()),
      connection.on("lost", () => {
        this.onChanged();
        this.#tryLater();
      }),
    ];
  }

  get name(): string {
    return this.connection.url;
  }

  get inFlight(): number {
    return this.connection.inFlight;
  }

  get streams(): number {
    return this.connection.streams;
  }

  get weight(): number {
    const { slowStartMs } = this.#options;
    if (slowStartMs === 0) return 1;
    return slowStartWeight(this.connection.engine.clock.now(), this.#connectedMs, slowStartMs);
  }

  /** True while connected, suspected or not. False while the backend drains. */
  get isOpen(): boolean {
    const { state } = this.connection;
    return state === "connected" || state === "suspect";
  }

  stats(nowMs: number): BackendStats {
    const { window: _window, ...stats } = this.connection.stats();
    const { name: url, weight } = this;
    return { url, ...stats, ejected: this.outlier.ejected(nowMs), weight };
  }

  /** A change that may make the backend ready or unready. */
  onChanged(): void {
    if (!this.#retired) this.#set.onBackendChanged();
  }

  onSettled(code: RpcCode | "ok"): void {
    if (!this.#retired) this.#set.onBackendSettled(this, code);
  }

  onClosed(): void {
    this.#leave();
  }

  /**
   * Connects now, and continues trying in the background until it is connected or retired. Rejects with the error of
   * the first try.
   */
  async connect(): Promise<void> {
    this.#cancelTry?.();
    this.#cancelTry = undefined;
    if (this.#retired) return;
    try {
      const session = await this.connection.session();
      // The session may have ended before a listener existed, so its loss is not reported.
      if (session.state !== "open") this.#tryLater();
    } catch (error) {
      this.#tryLater();
      throw error;
    }
  }

  #tryLater(): void {
    if (this.#retired || this.#cancelTry !== undefined) return;
    this.#cancelTry = this.connection.engine.clock.timer(
      backoffMs(this.#attempt++, this.#options.reconnect),
      () => void this.connect().catch(() => {}),
      true,
    );
    this.onChanged();
  }

  /** The backend takes no new calls. It is closed when the calls in flight have ended. */
  retire(onDone: () => void): void {
    this.#leave();
    const closeIfDone = (): void => {
      // Control requests count here, so that borrowed regions of either side are returned first.
      if (this.connection.idle) {
        this.close();
        onDone();
      } else this.#cancelTry = this.connection.engine.clock.timer(retiredLookMs, closeIfDone, true);
    };
    closeIfDone();
  }

  /** Safe to call twice; the first reason counts. */
  close(reason?: RpcError): void {
    this.#leave();
    this.connection.close(reason);
  }

  /** Stops the tries and the listener. The connection stays open. */
  #leave(): void {
    this.#retired = true;
    this.#cancelTry?.();
    this.#cancelTry = undefined;
    for (const off of this.#offs) off();
    this.#set.onBackendChanged();
  }
}

/** The time between checks of a retired backend, until its last call has ended. */
const retiredLookMs = 50;

/** Error codes that blame the server, not the call. */
const serverFailures: ReadonlySet<RpcCode | "ok"> = new Set([
  "unavailable",
  "deadline_exceeded",
  "internal",
  "unknown",
  "resource_exhausted",
  "data_loss",
]);
const longestTimes = 10;

/**
 * The number of calls whose share of failures is judged together. With fewer calls, chance would eject healthy
 * backends.
 */
const judgedCalls = 50;

/**
 * Whether one peer is ejected. Two rules of Envoy's outlier detection, which gRPC has too (gRFC A50):
 * - Failures in a row. A success between forgives them.
 * - The share of failures among the last calls, compared with that of the other backends. It finds a backend that fails
 *   every second call.
 *
 * A time of good behaviour as long as the last ejection forgives one ejection.
 */
export class Outlier {
  readonly #options: Complete<EjectionOptions>;
  #failures = 0;
  /** The numbers of counted calls, and of failures among them. */
  #calls = 0;
  #failed = 0;
  /** The share of failures in the previous count. */
  #lastShare = 0;
  #times = 0;
  /** The end of the last ejection. */
  untilMs = Number.NEGATIVE_INFINITY;

  constructor(options: Complete<EjectionOptions>) {
    this.#options = options;
  }

  ejected(nowMs: number): boolean {
    return nowMs < this.untilMs;
  }

  /** The recent share of failed calls, from 0 to 1. */
  get failureShare(): number {
    return this.#calls < judgedCalls / 2 ? this.#lastShare : this.#failed / this.#calls;
  }

  /** A call to the backend has ended. Returns the verdict: by its share, it is ejected only if the others fail less. */
  settled(code: RpcCode | "ok"): "consecutive" | "share" | undefined {
    // The caller stopped waiting, so the call was neither a success nor a failure.
    if (code === "cancelled") return undefined;
    const { consecutiveFailures, failureShare } = this.#options;
    this.#calls++;
    if (!serverFailures.has(code)) this.#failures = 0;
    else {
      this.#failures++;
      this.#failed++;
    }
    let isOutlier = false;
    if (this.#calls >= judgedCalls) {
      this.#lastShare = this.#failed / this.#calls;
      this.#calls = 0;
      this.#failed = 0;
      isOutlier = failureShare < 1 && this.#lastShare >= failureShare;
    }
    if (this.#failures >= consecutiveFailures) return "consecutive";
    return isOutlier ? "share" : undefined;
  }

  eject(nowMs: number): void {
    const { baseMs } = this.#options;
    if (this.#times > 0 && nowMs > this.untilMs + this.#times * baseMs) this.#times--;
    this.#times = Math.min(this.#times + 1, longestTimes);
    this.#failures = 0;
    this.#calls = 0;
    this.#failed = 0;
    this.untilMs = nowMs + this.#times * baseMs;
  }
}
