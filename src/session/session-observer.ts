import type { RpcError } from "../errors/rpc-error.ts";
import type { LaneAddress } from "../wire/handshake.ts";

/** Who wants to know how a session fares: the peer that opened it. */
export interface SessionObserver {
  /** The peer has not answered a ping for longer than it usually takes; `phi` says how strange that is. */
  onSuspect(phi: number, silentMs: number): void;
  /** A suspected peer was heard again. */
  onTrusted(): void;
  /** It takes no new calls from now on. */
  onDraining(): void;
  /** It speaks for lanes, and says where they are now. */
  onLanes(lanes: readonly LaneAddress[]): void;
  onEnded(reason: RpcError): void;
}
