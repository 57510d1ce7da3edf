/*
 * The room `call`: the state of one call on each side, and what ends it early; the shape of middleware.
 * Promises: a call ends once, for one reason. Its slot, deadline and signal are given back with it.
 * Takes: metadata and the identity of calls from `wire`, grants from `memory`.
 */

import { RpcError } from "../base/errors/rpc-error.ts";
import type { Priority } from "../base/flow/priority.ts";
import type { Queued } from "../base/flow/priority-queue.ts";
import { boundHere } from "../base/time/detached-context.ts";
import type { Grant, Withdrawal } from "../memory/grant.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import type { Metadata } from "../wire/metadata/metadata.ts";
import type { CallItems } from "./call-items.ts";
import { MadeCall, type UnsentPhase } from "./made-call.ts";

/**
 * Where a call stands on the caller's side.
 *
 *   waiting     no request has left: validating, queued
 *   connecting  the same, and a session is being opened
 *   sent        the request has left (or waits in the outbox)
 *   pulling     the response is being pulled by RMA
 *   settled     the caller has its value or error
 *
 *   from      event                               to        effect
 *   waiting   no session is open                  connecting
 *   waiting, connecting
 *             the session's window is full        waiting   queued there
 *             request encoded                     sent      number taken
 *   waiting   session lost or drains              waiting   may ask for another session, else settled
 *   sent      refused: the peer drains            waiting   released; may ask for another session, else settled
 *   sent      response                            settled   released
 *   sent      response with rendezvous body         pulling   pull begins
 *   pulling   pulled                              settled   released
 *   sent      error                               settled   released
 *   any open  abort, deadline                     settled   cancel sent if a request had left; released when the terminal frame comes
 *   any open  session lost or closed              settled   released
 *
 * The server answers every request with exactly one terminal frame, cancelled or not. Until that frame comes, the
 * number and the memory granted to the peer stay taken. So no memory that the peer may still touch is used again.
 */
export type OutgoingPhase = "waiting" | "connecting" | "sent" | "pulling" | "settled";

/** Never filled: the first grant and the first observer of a call replace them. */
const noGrants: Grant[] = [];
const noObservers: CallObserver[] = [];

/** One incarnation of a peer. */
export interface Callee {
  readonly url: string;
  readonly incarnation: bigint;
}

/** Called once when the call has settled for its caller, with the error if there was one. */
export type CallObserver = (error: RpcError | undefined) => void;

/** Receives the headers before the first item and the answer, or the trailers before the call settles. */
export type MetadataListener = (metadata: Metadata) => void;

/** The terms of a request. Calls without options of their own share the terms of their method. */
export interface RequestTerms {
  /** The priority in queues here and at the peer. */
  readonly priority: Priority;
  /** Fails at once when the window of the session is full. */
  readonly failsWhenFull: boolean;
  /** The call settles when its request has left. After that it cannot be cancelled. It lends no memory. */
  readonly isOneWay: boolean;
  /** A control request: from an engine, or from a user to a built-in service. It counts in no window. */
  readonly isBuiltin: boolean;
  /** The key for the policy of a balanced peer. Undefined: the result of `keyOf`. */
  readonly key: string | undefined;
}

/** Fields that few calls need, made on demand. */
export class Extras {
  /** Regions and rendezvous bodies that travelled with the request. */
  grants: Grant[] = noGrants;
  observers: CallObserver[] = noObservers;
  /** The block of metadata of the request. */
  metadata: Uint8Array | undefined = undefined;
  /** The identity by which the peer recognises another attempt. Undefined: the request is sent once. */
  identity: CallIdentity | undefined = undefined;
  /** The headers that the server sent before its first item and its answer. */
  headers: Metadata | undefined = undefined;
  onHeaders: MetadataListener | undefined = undefined;
  onTrailers: MetadataListener | undefined = undefined;
  /** The entry in the queue of the session while the call waits for a place in the window. */
  queued: Queued | undefined = undefined;
  /** The body was too long for a message, and is offered to the peer. */
  offersBody = false;
}

/** One call on the caller's side. Subclasses define what the phases mean to the caller. */
export abstract class OutgoingCall extends MadeCall {
  abstract readonly terms: RequestTerms;
  phase: OutgoingPhase = "waiting";
  /** The call's number on its session; 0 while the call waits. */
  id = 0;
  /**
   * Time from the start until the call connected, left and began to pull, in whole microseconds; -1 while it has not.
   * Small integers need no memory of their own.
   */
  connectingUs = -1;
  sentUs = -1;
  pullingUs = -1;
  /** The items of a stream. They are no extra field: most streams have no other, and so need no extras. */
  items: CallItems | undefined = undefined;
  /** Undefined while the call needs no extra field: then no other member of them is read. */
  extras: Extras | undefined;

  /**
   * Receives the response's decoded value, not yet validated, and the arrival time of its message on the engine's
   * clock. Called at most once, in phase `sent` or `pulling`.
   */
  abstract onValue(value: unknown, answeredMs: number): void;
  /** The call failed. Called at most once and never after `onValue`. */
  abstract onFailure(error: RpcError): void;
  /** The call waited in a session that no longer sends it. It has certainly not been executed. */
  onUnsent(error: RpcError, _input: unknown): void {
    this.onFailure(error);
  }

  /** A granted region is revoked. The call ends as if its caller had aborted it. Its grants end as always. */
  onRevoked(why: Withdrawal): void {
    if (this.settled) return;
    if (why === "revoked") this.endEarly("aborted", "a region that the call had granted was revoked");
    else this.endEarly("data_loss", "a region that the call had granted shows a file that has lost bytes");
  }

  /** The request lies with the outbox, under its number. Called for one-way calls, streams and calls with extras. */
  onLeft(): void {}

  /** The name of the session that has the request; "" while no request has left. */
  get sessionName(): string {
    return "";
  }

  override get isListed(): boolean {
    return !this.terms.isBuiltin;
  }

  override get unsentPhase(): UnsentPhase | undefined {
    if (this.id !== 0) return undefined;
    return this.phase === "connecting" ? "connecting" : "waiting";
  }

  /** True for another attempt at a call that began before the drain: a draining engine still sends it. */
  get again(): boolean {
    return false;
  }

  /**
   * The peer that must receive the call, because an earlier attempt may have been executed there. Undefined: any peer.
   */
  get boundTo(): Callee | undefined {
    return undefined;
  }

  override get settled(): boolean {
    return this.phase === "settled";
  }

  elapsedUs(nowMs: number): number {
    return Math.round((nowMs - this.startedMs) * 1000);
  }

  protected more(): Extras {
    this.extras ??= new Extras();
    return this.extras;
  }

  /** Calls `observer` when the call settles. The call must not have settled. */
  observe(observer: CallObserver): void {
    const extras = this.more();
    if (extras.observers === noObservers) extras.observers = [observer];
    else extras.observers.push(observer);
  }

  get observed(): boolean {
    return this.extras !== undefined && this.extras.observers.length > 0;
  }

  /** Called by subclasses when they have settled. */
  protected notifyObservers(error: RpcError | undefined): void {
    const { extras } = this;
    if (extras === undefined || extras.observers === noObservers) return;
    const { observers } = extras;
    extras.observers = noObservers;
    for (const observer of observers) observer(error);
  }

  /** Adds memory that the peer may touch until the grant is released. */
  addGrant(grant: Grant): void {
    const extras = this.more();
    if (extras.grants === noGrants) extras.grants = [grant];
    else extras.grants.push(grant);
  }

  /** The body is offered to the peer under the call's number. */
  offersBody(): void {
    this.more().offersBody = true;
  }

  get metadata(): Uint8Array | undefined {
    return this.extras?.metadata;
  }

  set metadata(block: Uint8Array | undefined) {
    this.more().metadata = block;
  }

  get identity(): CallIdentity | undefined {
    return this.extras?.identity;
  }

  set identity(identity: CallIdentity | undefined) {
    if (identity !== this.identity) this.more().identity = identity;
  }

  get queued(): Queued | undefined {
    return this.extras?.queued;
  }

  set queued(waiting: Queued | undefined) {
    this.more().queued = waiting;
  }

  /** Keeps the user's listeners for the server's metadata. They run in the async context of the caller. */
  listenForMetadata(onHeaders: MetadataListener | undefined, onTrailers: MetadataListener | undefined): void {
    const extras = this.more();
    extras.onHeaders = onHeaders && boundHere(onHeaders);
    extras.onTrailers = onTrailers && boundHere(onTrailers);
  }

  get headers(): Metadata | undefined {
    return this.extras?.headers;
  }

  /** The headers have come. Called once. */
  onHeaders(headers: Metadata): void {
    this.more().headers = headers;
    if (!this.settled) this.reportHeaders(headers);
  }

  protected reportHeaders(headers: Metadata): void {
    try {
      this.extras?.onHeaders?.(headers);
    } catch (cause) {
      if (!this.settled) this.endEarly("internal", "onHeaders threw", { cause });
    }
  }

  /** The answer has come with these trailers. False: a listener of the user has failed, or has ended the call. */
  reportTrailers(trailers: Metadata): boolean {
    try {
      this.extras?.onTrailers?.(trailers);
    } catch (cause) {
      if (!this.settled)
        this.onFailure(new RpcError({ code: "internal", message: "onTrailers threw", cause }));
    }
    return !this.settled;
  }

  get hasGrants(): boolean {
    return this.extras !== undefined && this.extras.grants !== noGrants;
  }

  get grantedBytes(): number {
    let bytes = 0;
    for (const grant of this.extras?.grants ?? noGrants) bytes += grant.bytes;
    return bytes;
  }

  /** Hands its grants over. The caller releases them. */
  takeGrants(): readonly Grant[] {
    const grants = this.extras?.grants ?? noGrants;
    if (this.extras !== undefined) this.extras.grants = noGrants;
    return grants;
  }

  /** The caller no longer waits, but the peer has not answered. */
  giveUpGrants(): void {
    for (const grant of this.extras?.grants ?? noGrants) grant.onGivenUp?.();
  }

  /** The peer has answered, or its process is certainly gone. */
  releaseGrants(): void {
    for (const grant of this.takeGrants()) grant.release();
  }
}
