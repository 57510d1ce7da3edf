import type { RpcError } from "../base/errors/rpc-error.ts";
import type { SlowCall } from "../base/observe/channels.ts";
import type { SessionPeer } from "../client/session-peer.ts";

/** A session of an engine with a peer. Either side may have connected. */
export interface SessionEvent {
  /** The peer, with its clients. It is the `call.caller` of the handlers that serve it. */
  readonly peer: SessionPeer;
}

/**
 * The events of `engine.on`, by name.
 *
 * @example
 * engine.on("sessionOpened", ({ peer }) => console.log(peer.address, peer.identity?.kind, peer.services));
 * engine.on("sessionEnded", ({ peer, reason }) => console.log(`${peer.address}: ${reason.message}`));
 */
export interface EngineEvents {
  /** A session is open, and the peer has reported its services: both sides can call. */
  readonly sessionOpened: SessionEvent;
  /** An open session has ended. `reason` explains it. Its origin is "fabric" when the peer was lost. */
  readonly sessionEnded: SessionEvent & { readonly reason: RpcError };
  /** A call has ended, made or served. With a listener, each call costs a reading of the clock and an object. */
  readonly callEnded: SlowCall;
}
