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
 * The server answers every request with exactly one terminal frame, cancelled or not. Until it comes the number, and
 * whatever memory the request granted to the peer, stay taken: nothing the peer may still touch is used again.
 */
export type OutgoingPhase = "waiting" | "connecting" | "sent" | "pulling" | "settled";

/** Never filled: a call's own arrays take their places with the first grant and the first observer. */
const noGrants: Grant[] = [];
const noObservers: CallObserver[] = [];

/** One life of a peer. */
export interface Callee {
  readonly url: string;
  readonly incarnation: bigint;
}

/** Told once when the call that it goes along with has settled for its caller: with the error, if there was one. */
export type CallObserver = (error: RpcError | undefined) => void;

/** Receives the headers before the first item and the answer, or the trailers before the call settles. */
export type MetadataListener = (metadata: Metadata) => void;

/** What a request is bound by. Calls without options of their own share the terms of their method. */
export interface RequestTerms {
  /** Where it stands among those that wait, here and at the peer. */
  readonly priority: Priority;
  /** It fails at once when it would have to wait for a place in its session's window. */
  readonly failsWhenFull: boolean;
  /** Its caller waits only until it has left: it cannot be cancelled after that, and lends no memory. */
  readonly isOneWay: boolean;
  /** A control request: of an engine, or of a user to a built-in service. It is in no window. */
  readonly isBuiltin: boolean;
  /** Its key for the policy of a balanced peer, where its client has one. Undefined: what `keyOf` gives. */
  readonly key: string | undefined;
}

/** Fields that few calls need, made on demand. */
export interface Extras {
  /** Regions and rendezvous bodies that travelled with the request. */
  grants: Grant[];
  observers: CallObserver[];
  /** The block of its request. */
  metadata: Uint8Array | undefined;
  /** What makes it known again to the peer when it is tried once more. Undefined: it stands for itself. */
  identity: CallIdentity | undefined;
  /** Its items where it is a stream. */
  items: CallItems | undefined;
  /** What its server sent before its first item and its answer. */
  headers: Metadata | undefined;
  onHeaders: MetadataListener | undefined;
  onTrailers: MetadataListener | undefined;
  /** What it takes to send it while it waits for a place in its session's window. */
  queued: Queued | undefined;
  /** Its body was too long for a message, and is offered to the peer. */
  offersBody: boolean;
}

const noExtras = (): Extras => ({
  grants: noGrants,
  observers: noObservers,
  metadata: undefined,
  identity: undefined,
  items: undefined,
  headers: undefined,
  onHeaders: undefined,
  onTrailers: undefined,
  queued: undefined,
  offersBody: false,
});

/** One call as its caller has it. What the phases mean to the caller is the subclass's business. */
export abstract class OutgoingCall extends MadeCall {
  abstract readonly terms: RequestTerms;
  phase: OutgoingPhase = "waiting";
  /** Its number on its session, 0 while waiting. */
  id = 0;
  /**
   * How long after its start it began to connect, left, began to pull, in whole microseconds; -1 when it has not. Small
   * integers need no memory of their own.
   */
  connectingUs = -1;
  sentUs = -1;
  pullingUs = -1;
  /** Undefined as long as it needs none: then no other member needs to be asked. */
  extras: Extras | undefined;

  /**
   * The response's value as decoded, not yet validated, and when its message came, on the engine's clock. Called at most
   * once, in phase `sent` or `pulling`.
   */
  abstract onValue(value: unknown, answeredMs: number): void;
  /** The call failed. Called at most once and never after `onValue`. */
  abstract onFailure(error: RpcError): void;
  /** It waited in a session that will not send it any more, and has certainly not been executed. */
  onUnsent(error: RpcError, _input: unknown): void {
    this.onFailure(error);
  }

  /** A region it has granted is taken back. It ends as if its caller had aborted it, and its grants end as always. */
  onRevoked(why: Withdrawal): void {
    if (this.settled) return;
    if (why === "revoked") this.endEarly("aborted", "a region that the call had granted was revoked");
    else this.endEarly("data_loss", "a region that the call had granted shows a file that has lost bytes");
  }

  /** Its request lies with the outbox, under its number. For one-way calls and those with extras. */
  onLeft(): void {}

  override get isListed(): boolean {
    return !this.terms.isBuiltin;
  }

  override get unsentPhase(): UnsentPhase | undefined {
    return this.id === 0 && this.phase === "connecting"
      ? "connecting"
      : this.id === 0
        ? "waiting"
        : undefined;
  }

  /** Another try of a call that was let in when it began: a draining engine still sends it. */
  get again(): boolean {
    return false;
  }

  /** Where it must go, because an attempt that it stands for may have been executed there. Undefined: anywhere. */
  get boundTo(): Callee | undefined {
    return undefined;
  }

  override get settled(): boolean {
    return this.phase === "settled";
  }

  /** Time since its start, in whole microseconds. */
  elapsedUs(nowMs: number): number {
    return Math.round((nowMs - this.startedMs) * 1000);
  }

  protected more(): Extras {
    this.extras ??= noExtras();
    return this.extras;
  }

  /** Calls `observer` when the call settles. It must not have settled. */
  observe(observer: CallObserver): void {
    const extras = this.more();
    if (extras.observers === noObservers) extras.observers = [observer];
    else extras.observers.push(observer);
  }

  /** Whether anything goes along with it. */
  get observed(): boolean {
    return this.extras !== undefined && this.extras.observers.length > 0;
  }

  /** For subclasses, when they have settled. */
  protected notifyObservers(error: RpcError | undefined): void {
    const { extras } = this;
    if (extras === undefined || extras.observers === noObservers) return;
    const { observers } = extras;
    extras.observers = noObservers;
    for (const observer of observers) observer(error);
  }

  /** Memory goes along, and is the peer's to touch until the grant is released. */
  addGrant(grant: Grant): void {
    const extras = this.more();
    if (extras.grants === noGrants) extras.grants = [grant];
    else extras.grants.push(grant);
  }

  /** Its body is offered to the peer under its number. */
  offersBody(): void {
    this.more().offersBody = true;
  }

  /** The block of metadata that its request carries. */
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

  get items(): CallItems | undefined {
    return this.extras?.items;
  }

  get queued(): Queued | undefined {
    return this.extras?.queued;
  }

  set queued(waiting: Queued | undefined) {
    this.more().queued = waiting;
  }

  /** Gives the user's listeners the metadata of the server, in the async context of the caller. */
  listenForMetadata(onHeaders: MetadataListener | undefined, onTrailers: MetadataListener | undefined): void {
    const extras = this.more();
    extras.onHeaders = onHeaders && boundHere(onHeaders);
    extras.onTrailers = onTrailers && boundHere(onTrailers);
  }

  get headers(): Metadata | undefined {
    return this.extras?.headers;
  }

  /** They have come, once. */
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

  /** The answer is there, with these. False: a listener of the user's has failed, or ended, the call. */
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

  /** Its caller waits no more, but the peer has not answered. */
  giveUpGrants(): void {
    for (const grant of this.extras?.grants ?? noGrants) grant.onGivenUp?.();
  }

  /** The peer has answered, or its process is gone for certain. */
  releaseGrants(): void {
    for (const grant of this.takeGrants()) grant.release();
  }
}
