import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { EngineLimits } from "../../base/flow/engine-limits.ts";
import type { PeerAccount } from "../../base/flow/peer-account.ts";
import type { Counters } from "../../base/observe/counters.ts";
import type { Clock } from "../../base/time/clock.ts";
import type { DeadlineWheel } from "../../base/time/deadline-wheel.ts";
import type { Answering } from "../../call/incoming-call.ts";
import type { OutgoingCall } from "../../call/outgoing-call.ts";
import type { GrantedRegions } from "../../memory/granted-regions.ts";
import type { Identity } from "../../security/identity.ts";
import type { SealedOwner } from "./sealed-bulk.ts";
import type { TransferRoute } from "./transfer-route.ts";

export interface ControlRequestOptions {
  /** How long to wait for the answer, in milliseconds. Default 10,000. */
  readonly timeoutMs?: number;
  /**
   * How much longer than the peer is told this side waits, so that the peer's own clock ends it first; in milliseconds.
   * Default 0.
   */
  readonly graceMs?: number;
  /**
   * Gives the request up; the promise rejects with the reason where that is an RpcError, else with `cancelled` and the
   * reason as its cause.
   */
  readonly signal?: AbortSignal | undefined;
}

/** What the layers above a session use of the engine that it belongs to. */
export interface LinkServices {
  readonly wheel: DeadlineWheel;
  readonly counters: Counters;
  readonly limits: EngineLimits;
  /** A random 64-bit number of this engine's life. */
  readonly incarnation: bigint;
}

/**
 * One peer, as handlers and transfers see it: who it is, what it was granted, and the way to ask it. A
 * session is one; nobody who serves or asks a peer needs more of the session than this.
 */
export interface PeerLink extends TransferRoute, Answering {
  /** The peer's URL, or what is known of it. */
  readonly peerName: string;
  /** Who the peer has proven to be; undefined for a peer that proves nothing. */
  readonly identity: Identity | undefined;
  /** Whether nobody but the peer can read what is sent: it is sealed, or does not leave this host. */
  readonly isConfidential: boolean;
  readonly services: LinkServices;
  /** The part of its session of this class. Throws when there is none. Not for the hot path. */
  part<P extends object>(type: abstract new (...args: never[]) => P): P;
  /** What the peer makes this engine hold. */
  readonly account: PeerAccount;
  /** What the peer has of this engine's memory now. */
  readonly grants: GrantedRegions;
  /** Present where bulk travels sealed. */
  readonly sealedOwner?: SealedOwner | undefined;
  /** Bytes of immediate data that the peer's port takes with a put, or undefined while it is not known. */
  readonly peerImmediateBytes: number | undefined;
  onOverdue(call: Parameters<NonNullable<Answering["onOverdue"]>>[0]): void;
  /** Why the peer may not call a method, `service/method`, or make a control request of that name, if so. */
  refusalOf(path: string): RpcError | undefined;
  /** Whether the peer may call a method, for lists: nothing is counted as refused. */
  permits(path: string): boolean;
  /** The peer has asked for what belongs to another identity, and was refused. */
  onOtherIdentity(why: string): void;
  /**
   * Sends a control request, and gives its answer. Rejects with an RpcError, `deadline_exceeded` after 10 s unless
   * `timeoutMs` says otherwise.
   */
  request(method: number, input: unknown, options?: ControlRequestOptions): Promise<unknown>;
}

/** What sends control requests. */
export interface ControlRequestSender {
  readonly peerName: string;
  readonly services: { readonly clock: Clock; readonly wheel: DeadlineWheel };
  /** Throws RpcError when the request can neither leave nor wait. */
  request(call: OutgoingCall, method: number, endMs: number, input: unknown, nowMs: number): void;
  cancel(call: OutgoingCall): void;
}
