import type { RpcError } from "../base/errors/rpc-error.ts";
import type { Identity } from "../security/identity.ts";

/** A session of an engine with a peer, whichever side has connected. */
export interface SessionEvent {
  /** The peer's address: the URL that this side has connected to, or where the peer connected from. */
  readonly peer: string;
  /** The peer's version and fabric, as "cinnabar/0.1 libfabric/1.17 net/1.0". */
  readonly agent: string;
  /** `engine.incarnation` of the peer. */
  readonly incarnation: bigint;
  /** Who the peer has proven to be; undefined for a peer that proves nothing. */
  readonly identity: Identity | undefined;
}

/**
 * The events of `engine.on`, by name.
 *
 * @example
 * engine.on("sessionOpened", ({ peer, identity }) => console.log(`${peer} is ${identity?.name ?? "unknown"}`));
 * engine.on("sessionEnded", ({ peer, reason }) => console.log(`${peer}: ${reason.message}`));
 */
export interface EngineEvents {
  /** A session is open: calls can go both ways. */
  readonly sessionOpened: SessionEvent;
  /** A session that was open has ended. `reason` says why; its origin is "fabric" where the peer was lost. */
  readonly sessionEnded: SessionEvent & { readonly reason: RpcError };
}
