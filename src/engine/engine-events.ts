import type { RpcError } from "../base/errors/rpc-error.ts";
import type { SlowCall } from "../base/observe/channels.ts";
import type { SessionPeer } from "../client/session-peer.ts";

/** A session of an engine with a peer, whichever side has connected. */
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
  /** A session is open, and the peer has said what it serves: calls can go both ways. */
  readonly sessionOpened: SessionEvent;
  /** A session that was open has ended. `reason` says why; its origin is "fabric" where the peer was lost. */
  readonly sessionEnded: SessionEvent & { readonly reason: RpcError };
  /** A call has ended, made or served. While somebody listens, each call costs a reading of the clock and an object. */
  readonly callEnded: SlowCall;
}
