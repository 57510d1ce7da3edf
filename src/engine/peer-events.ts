import type { RpcError } from "../errors/rpc-error.ts";

/** What `peer.on` tells, by name. */
export interface PeerEvents {
  /** The first session is open. */
  readonly connected: { readonly incarnation: bigint };
  /** It has not answered for longer than it usually takes (it may be computing), but may yet, until `heartbeatMs` is over. */
  readonly suspect: {
    /** How unlikely the silence is, going by the answers before: 8 is one in 10^8. */
    readonly phi: number;
    /** For how long nothing has been heard of it, in milliseconds. */
    readonly silentMs: number;
  };
  /** It takes no new calls. */
  readonly draining: Record<string, never>;
  /** The session has ended, not by our doing. */
  readonly lost: { readonly reason: RpcError };
  /** It was suspected and has been heard, or it was lost and a new session is open; `restarted` when that is with another incarnation. */
  readonly back: {
    readonly after: "suspect" | "lost";
    readonly restarted: boolean;
    readonly incarnation: bigint;
  };
  /** By us, for good. Nothing is told after it. */
  readonly closed: Record<string, never>;
}
