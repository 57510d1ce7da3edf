import type { RpcError } from "../base/errors/rpc-error.ts";
import type { WindowStats } from "../base/flow/in-flight-window.ts";
import type { Traffic } from "../session/calls/traffic.ts";

/**
 * The state of a peer.
 *
 *   connecting  a session is being opened
 *   connected   calls can be sent
 *   suspect     calls are sent, but a ping is unanswered for longer than usual
 *   draining    the peer takes no new calls; those in flight continue. New calls fail with `unavailable`; with
 *               `whileLost: "wait"` they wait for the peer's successor
 *   lost        the session has ended; the next call opens another one
 *   closed      `close` was called; the peer stays closed
 */
export type PeerState = "connecting" | "connected" | "suspect" | "draining" | "lost" | "closed";

/**
 * The events of `peer.on`, by name.
 *
 * @example
 * peer.on("connected", ({ incarnation }) => console.log(`connected to ${incarnation}`));
 * peer.on("suspect", ({ phi, silentMs }) => console.warn(`silent for ${silentMs} ms, phi ${phi}`));
 * peer.on("draining", () => console.log(`${peer.url} is shutting down`));
 */
export interface PeerEvents {
  /** The first session is open. */
  readonly connected: { readonly incarnation: bigint };
  /**
   * A ping is unanswered for longer than usual, for example because the peer's event loop is blocked. The peer is lost
   * when it stays silent for `heartbeatMs`.
   */
  readonly suspect: {
    /**
     * How unlikely the silence is, estimated from earlier answers: 8 means one in 10^8. From the phi accrual failure
     * detector (Hayashibara et al., SRDS 2004).
     */
    readonly phi: number;
    /** How long the peer has been silent, in milliseconds. */
    readonly silentMs: number;
  };
  /** The peer takes no new calls. */
  readonly draining: Record<string, never>;
  /** The peer has reported which of its services serve, since the session opened: `peer.health` has the report. */
  readonly health: Record<string, never>;
  /** The session has ended, and `close` was not called. */
  readonly lost: { readonly reason: RpcError };
  /** A suspect peer has answered, or a lost peer is connected again. `restarted`: the peer has another incarnation. */
  readonly back: {
    readonly after: "suspect" | "lost";
    readonly restarted: boolean;
    readonly incarnation: bigint;
  };
  /** `close` was called. This is the last event. */
  readonly closed: Record<string, never>;
}

/** State of a peer, and its traffic. */
export interface PeerStats extends Traffic {
  readonly state: PeerState;
  /** The window of the session with the peer. */
  readonly window: WindowStats;
  /** The services that do not serve, as the peer has reported. "" is the whole peer. */
  readonly notServing: readonly string[];
}

/** State and traffic of one backend of a balanced peer. */
export interface BackendStats extends Traffic {
  readonly url: string;
  readonly state: PeerState;
  /**
   * The services that do not serve, as the backend has reported: they receive no calls there. "" is the whole backend.
   */
  readonly notServing: readonly string[];
  /** Ejected by outlier detection. An ejected backend gets no calls for a while. */
  readonly ejected: boolean;
  /** The backend's share of calls relative to the others, from above 0 to 1; below 1 during slow start. */
  readonly weight: number;
}
