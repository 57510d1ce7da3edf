import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { EngineLimits } from "../../base/flow/engine-limits.ts";
import type { PeerAccount } from "../../base/flow/peer-account.ts";
import type { Counters } from "../../base/observe/counters.ts";
import type { Clock } from "../../base/time/clock.ts";
import type { DeadlineWheel } from "../../base/time/deadline-wheel.ts";
import type { CallOperations } from "../../call/call-operations.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";
import type { OutgoingCall } from "../../call/outgoing-call.ts";
import type { Port } from "../../fabric/port.ts";
import type { GrantedRegions } from "../../memory/granted-regions.ts";
import type { Identity } from "../../security/identity.ts";
import type { SealedMover, SealedOwner } from "./sealed-bulk.ts";

export interface ControlRequestOptions {
  /** How long to wait for the answer, in milliseconds. Default 10,000. */
  readonly timeoutMs?: number;
  /**
   * How much longer this side waits than the time it sends to the peer, so that the peer's clock ends the request
   * first; in milliseconds. Default 0.
   */
  readonly graceMs?: number;
  /**
   * Cancels the request. The promise rejects with the reason where that is an RpcError, else with `cancelled` and the
   * reason as its cause.
   */
  readonly signal?: AbortSignal | undefined;
}

/** The services of a session's engine for the layers above the session. */
export interface LinkServices {
  readonly wheel: DeadlineWheel;
  readonly counters: Counters;
  readonly limits: EngineLimits;
  /** `wake`: makes progress soon, because work was posted. */
  readonly progress: { wake(): void };
  /** A random 64-bit number of this engine's life. */
  readonly incarnation: bigint;
}

/**
 * One peer, as handlers and transfers see it: its identity, its grants, and the way to send it requests. A session
 * implements this. Code that serves a peer or sends it requests needs no more of the session.
 */
export interface PeerLink {
  readonly port: Port;
  readonly address: number;
  readonly clock: Clock;
  /** The peer's URL, or the known part of it. */
  readonly peerName: string;
  /** The proven identity of the peer; undefined for a peer without one. */
  readonly identity: Identity | undefined;
  /** Whether only the peer can read sent bytes: they are sealed, or do not leave this host. */
  readonly isConfidential: boolean;
  readonly services: LinkServices;
  /** The part of its session of this class. Throws without such a part. Not for the hot path. */
  part<P extends object>(type: abstract new (...args: never[]) => P): P;
  /** The resources of this engine that the peer holds. */
  readonly account: PeerAccount;
  /** The peer's present grants on this engine's memory. */
  readonly grants: GrantedRegions;
  /** Asks the region's owner why its provider rejected a transfer. Undefined when the owner knows no reason. */
  explain?: ((refused: RefusedTransfer) => Promise<RpcError | undefined>) | undefined;
  /** Present where bulk travels sealed: then no one-sided access to a region is possible. */
  readonly sealedMover?: SealedMover | undefined;
  /** Present where bulk travels sealed. */
  readonly sealedOwner?: SealedOwner | undefined;
  /** Bytes of immediate data that the peer's port takes with a put, or undefined while it is not known. */
  readonly peerImmediateBytes: number | undefined;
  /** The deadline of a call of the peer has passed, and its handler has not ended. */
  onOverdue(call: IncomingCall): void;
  /**
   * The refusal of a method, `service/method`, or of a control request of that name; undefined if the peer may call it.
   */
  refusalOf(path: string): RpcError | undefined;
  /** Whether the peer may call a method, for lists: this is not counted as a refusal. */
  permits(path: string): boolean;
  /** The peer has asked for a resource of another identity, and was refused. */
  onOtherIdentity(why: string): void;
  /**
   * Sends a control request, and resolves to its answer. Rejects with an RpcError, `deadline_exceeded` after 10 s
   * unless `timeoutMs` is set.
   */
  request(method: number, input: unknown, options?: ControlRequestOptions): Promise<unknown>;
}

/**
 * The time in which transfers may use a peer's memory. An incoming call is such a scope: the regions that came with it
 * may be used until it ends.
 */
export interface TransferScope {
  /** The number of the call; undefined if it is no call. */
  readonly id?: number | undefined;
  readonly open: boolean;
  /** When the scope ends at the latest, on the engine's clock. */
  readonly deadlineMs: number;
  /** Fires when the scope ends against the will of its user; the reason is an RpcError. */
  readonly signal: AbortSignal;
  /** Records failures of operations that are not awaited; undefined where no report is made. */
  readonly operations?: CallOperations | undefined;
  /** Throws the error that ended the scope. */
  assertOpen(): void;
  /**
   * A transfer begins. The scope's end is sent to the peer after the transfer has ended. Throws as `assertOpen`.
   */
  beginTransfer(): void;
  endTransfer(): void;
}

/**
 * A transfer that a provider rejected without a reason: bytes `offset` to `offset + bytes` of the grant with this key.
 */
export interface RefusedTransfer {
  readonly key: bigint;
  readonly needed: "read" | "write";
  readonly offset: number;
  readonly bytes: number;
}

/** Sends control requests. */
export interface ControlRequestSender {
  readonly peerName: string;
  readonly services: { readonly clock: Clock; readonly wheel: DeadlineWheel };
  /** Throws RpcError when the request can neither leave nor wait. */
  request(call: OutgoingCall, method: number, endMs: number, input: unknown, nowMs: number): void;
  cancel(call: OutgoingCall): void;
}
