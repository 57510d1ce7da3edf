import type { UnsentPhase } from "../call/made-call.ts";
import { type Callee, type MetadataListener, OutgoingCall, regionRevoked } from "../call/outgoing-call.ts";
import type { RpcCode } from "../errors/code.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Priority } from "../flow/priority.ts";
import { type Grant, withEnds } from "../memory/grant.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import type { ClientMethod } from "./client-method.ts";
import { type CallSession, wasTurnedAway } from "./session-source.ts";

/**
 * How an attempt failed: `failed` with an error, `late` by its own time limit, `final` because there can be no other:
 * its peer was closed, or what it had granted was revoked.
 */
export type AttemptFailure = "failed" | "late" | "final";

/** The call that an attempt is made for. */
export interface AttemptOwner {
  readonly method: ClientMethod;
  readonly input: unknown;
  readonly startedMs: number;
  readonly deadlineMs: number;
  /** Where an attempt may have been executed that another can stand for. */
  readonly boundTo: Callee | undefined;
  readonly priority: Priority;
  readonly failsWhenFull: boolean;
  /** What the request carries. */
  readonly metadata: Uint8Array | undefined;
  readonly onMetadata: MetadataListener | undefined;
  /**
   * Who the request is in this session; undefined when it stands for itself. Throws RpcError when it may not be sent
   * there.
   */
  identify(session: CallSession): CallIdentity | undefined;
  onAttemptValue(attempt: Attempt, value: unknown): void;
  onAttemptFailure(attempt: Attempt, error: RpcError, how: AttemptFailure): void;
  /** The memory that an attempt had granted is ours again, or may never be. */
  onGrantsChanged(): void;
}

/**
 * One request of a call that may make several: it finds a session, is sent, and tells its call once what became of it.
 */
export class Attempt extends OutgoingCall {
  readonly #owner: AttemptOwner;
  /** 1 for a call's first. */
  readonly number: number;
  readonly #timeoutMs: number;
  #session: CallSession | undefined;
  #identity: CallIdentity | undefined;
  /** How many regions travelled with it, and how many of them the peer may still touch. */
  #carried = 0;
  #openGrants = 0;
  /** Its session was lost, and who may touch them may live on. */
  #held = false;

  constructor(owner: AttemptOwner, number: number, timeoutMs: number) {
    super();
    this.#owner = owner;
    this.number = number;
    this.#timeoutMs = timeoutMs;
    // Its times are told as its call's.
    this.startedMs = owner.startedMs;
    this.deadlineMs = owner.deadlineMs;
    this.priority = owner.priority;
    this.failsWhenFull = owner.failsWhenFull;
    if (owner.metadata !== undefined) this.metadata = owner.metadata;
    if (owner.onMetadata !== undefined) this.listenForMetadata(owner.onMetadata);
  }

  override get methodPath(): string {
    return this.#owner.method.path;
  }

  override get peerName(): string {
    return this.#session?.peerName ?? this.#owner.method.source.name;
  }

  /** Until it has left, its call is listed. */
  override get unsentPhase(): UnsentPhase | undefined {
    return undefined;
  }

  override get identity(): CallIdentity | undefined {
    return this.#identity;
  }

  override get again(): boolean {
    return this.number > 1;
  }

  override get boundTo(): Callee | undefined {
    return this.#owner.boundTo;
  }

  /** Where it was sent; undefined when nothing has left. */
  get session(): CallSession | undefined {
    return this.id === 0 ? undefined : this.#session;
  }

  /** Whether the peer may still touch memory that this attempt granted it. */
  get hasOpenGrants(): boolean {
    return this.#openGrants > 0;
  }

  /** Whether that memory may never come back, nor anybody tell. */
  get grantsHeld(): boolean {
    return this.#held && this.hasOpenGrants;
  }

  /** Whether memory went along. */
  get carries(): boolean {
    return this.#carried > 0;
  }

  start(input: unknown): void {
    const { source } = this.#owner.method;
    const { engine } = source;
    const endMs = engine.clock.now() + this.#timeoutMs;
    if (endMs < this.#owner.deadlineMs) engine.wheel.arm(this, endMs);
    this.#find(input);
  }

  #find(input: unknown): void {
    const { source } = this.#owner.method;
    const { engine } = source;
    let session: CallSession | Promise<CallSession>;
    try {
      session = source.session(this, input);
    } catch (error) {
      // One that drains may be back in time, or another take the call; but an engine that takes no calls will not take
      // any again.
      const isFinal = source.closed || (!this.again && !engine.gate.calls);
      return this.#fail(error as RpcError, isFinal ? "final" : "failed");
    }
    if (session instanceof Promise) {
      this.phase = "connecting";
      this.connectingUs = this.elapsedUs(engine.clock.now());
      session.then(
        (opened) => this.#send(opened, input),
        (error: RpcError) => this.#fail(error, "failed"),
      );
    } else this.#send(session, input);
  }

  #send(session: CallSession, input: unknown): void {
    if (this.settled) return;
    const { method, deadlineMs } = this.#owner;
    const number = method.numberIn(session.methods);
    if (number < 0) {
      const message = method.unservedBy(session.methods);
      return this.#fail(new RpcError({ code: "unimplemented", message, origin: "local" }), "failed");
    }
    this.#session = session;
    try {
      this.#identity = this.#owner.identify(session);
      // Whoever is known again may be answered by a later attempt: the server is given all of the call's time.
      const endMs = this.#limited && this.identity === undefined ? this.deadlineMs : deadlineMs;
      session.request(this, number, endMs, input);
      // Given up from inside the encoding, before the request had left.
      if (this.settled) session.cancel(this);
    } catch (error) {
      this.#fail(
        error instanceof RpcError
          ? error
          : new RpcError({ code: "internal", message: "the request could not be sent", cause: error }),
        "failed",
      );
    }
  }

  /** Has a time limit of its own, shorter than its call's. */
  get #limited(): boolean {
    return this.wheelBucket >= 0;
  }

  override addGrant(grant: Grant): void {
    this.#carried++;
    this.#openGrants++;
    const release = (onReleased?: () => void) => {
      grant.release(() => {
        onReleased?.();
        if (--this.#openGrants === 0) this.#owner.onGrantsChanged();
      });
    };
    const onHeld = () => {
      this.#held = true;
      this.#owner.onGrantsChanged();
    };
    super.addGrant(withEnds(grant, { release, onHeld }));
  }

  override onValue(value: unknown): void {
    this.#end("ok");
    this.tellObservers(undefined);
    this.#owner.onAttemptValue(this, value);
  }

  override onFailure(error: RpcError): void {
    if (!this.observed && wasTurnedAway(this.#session, this.id, error))
      return this.onUnsent(error, this.#owner.input);
    // Both sides run a clock, and the server's verdict on the attempt's time may come first.
    const late = error.code === "deadline_exceeded" && this.#limited && this.identity === undefined;
    this.#fail(error, late ? "late" : "failed");
  }

  override onUnsent(error: RpcError, input: unknown): void {
    const { waitForReady, hasOthers } = this.#owner.method.source;
    if (!waitForReady && !hasOthers) return this.#fail(error, "failed");
    this.phase = "waiting";
    this.id = 0;
    this.#session = undefined;
    this.#identity = undefined;
    // Whoever has sessions must hear first that this one has ended.
    queueMicrotask(() => {
      if (!this.settled) this.#find(input);
    });
  }

  override onDeadline(): void {
    if (this.settled) return;
    // A server that knows the call again goes on with it: the next attempt joins what this one has begun. What waits to
    // be sent has begun nothing.
    if (this.identity === undefined || this.id === 0) this.#cancel();
    const message = `attempt ${this.number} took longer than attemptTimeoutMs ${this.#timeoutMs}`;
    this.#fail(new RpcError({ code: "deadline_exceeded", message, origin: "local" }), "late");
  }

  override onRevoked(): void {
    if (this.settled) return;
    this.#fail(new RpcError({ code: "aborted", message: regionRevoked, origin: "local" }), "final");
    this.#cancel();
  }

  /** Nobody waits for it any more. Tells the peer, if that may still be at it. */
  giveUp(): void {
    // What stands for itself was cancelled when it was late.
    if (this.settled && this.identity === undefined) return;
    if (!this.settled)
      this.#giveIn(new RpcError({ code: "cancelled", message: "the call was cancelled", origin: "local" }));
    this.#cancel();
  }

  #cancel(): void {
    this.#session?.cancel(this);
  }

  #fail(error: RpcError, how: AttemptFailure): void {
    if (this.settled) return;
    // Whatever goes along has had its one try, and is told now.
    const isFinal = how === "final" || this.observed;
    this.#giveIn(error);
    this.#owner.onAttemptFailure(this, error, isFinal ? "final" : how);
  }

  #giveIn(error: RpcError): void {
    this.#end(error.code);
    this.tellObservers(error);
  }

  #end(code: RpcCode | "ok"): void {
    this.phase = "settled";
    this.#owner.method.source.engine.wheel.disarm(this);
    this.session?.observer?.onSettled(code);
  }
}
