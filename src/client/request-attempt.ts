import { RpcError } from "../base/errors/rpc-error.ts";
import type { Priority } from "../base/flow/priority.ts";
import type { UnsentPhase } from "../call/made-call.ts";
import { OutgoingCall, regionRevoked } from "../call/outgoing-call.ts";
import type { Metadata } from "../wire/metadata/metadata.ts";
import type { ClientMethod } from "./client-method.ts";
import type { CallSession } from "./session-source.ts";

/** What a request is made for. */
export interface RequestOwner {
  readonly method: ClientMethod;
  readonly startedMs: number;
  readonly priority: Priority;
  readonly failsWhenFull: boolean;
  /** What the request carries. */
  readonly metadata: Uint8Array | undefined;
}

/** One request of a call or stream that may make several: it finds a session, is sent there, and settles once. */
export abstract class RequestAttempt<Owner extends RequestOwner> extends OutgoingCall {
  protected readonly owner: Owner;
  /** Where it is sent, or will be. */
  protected target: CallSession | undefined;
  /** What came with the answer. The user is told by the owner, once. */
  answerMetadata: Metadata | undefined;

  constructor(owner: Owner, deadlineMs: number) {
    super();
    this.owner = owner;
    // Its times are told as its owner's.
    this.startedMs = owner.startedMs;
    this.deadlineMs = deadlineMs;
    this.priority = owner.priority;
    this.failsWhenFull = owner.failsWhenFull;
    if (owner.metadata !== undefined) this.metadata = owner.metadata;
  }

  override get methodPath(): string {
    return this.owner.method.path;
  }

  override get lane(): number | undefined {
    return this.owner.method.lane;
  }

  override get peerName(): string {
    return this.target?.peerName ?? this.owner.method.source.name;
  }

  /** Until it has left, its owner is listed. */
  override get unsentPhase(): UnsentPhase | undefined {
    return undefined;
  }

  /** Where it was sent; undefined when nothing has left. */
  get session(): CallSession | undefined {
    return this.id === 0 ? undefined : this.target;
  }

  override tellMetadata(metadata: Metadata): boolean {
    this.answerMetadata = metadata;
    return true;
  }

  /** About to be sent to this session: until when its server may take. Throws RpcError when it may not be sent there. */
  protected abstract endMsIn(session: CallSession): number;

  /** The attempt has failed. `isFinal`: there can be no other. Called again it does nothing. */
  protected abstract failWith(error: RpcError, isFinal: boolean): void;

  protected find(input: unknown): void {
    const { source } = this.owner.method;
    const { engine } = source;
    let session: CallSession | Promise<CallSession>;
    try {
      session = source.session(this, input);
    } catch (error) {
      // One that drains may be back in time, or another take the call; but an engine that takes no calls will not take
      // any again.
      return this.failWith(error as RpcError, source.closed || (!this.again && !engine.gate.calls));
    }
    if (session instanceof Promise) {
      this.phase = "connecting";
      this.connectingUs = this.elapsedUs(engine.clock.now());
      session.then(
        (opened) => this.#send(opened, input),
        (error: RpcError) => this.failWith(error, false),
      );
    } else this.#send(session, input);
  }

  #send(session: CallSession, input: unknown): void {
    if (this.settled) return;
    const { method } = this.owner;
    const number = method.numberIn(session.methods);
    if (number < 0) {
      const message = method.unservedBy(session.methods);
      return this.failWith(new RpcError({ code: "unimplemented", message, origin: "local" }), false);
    }
    this.target = session;
    try {
      session.request(this, number, this.endMsIn(session), input);
      // Given up from inside the encoding, before the request had left.
      if (this.settled) session.cancel(this);
    } catch (error) {
      const failed = () =>
        new RpcError({ code: "internal", message: "the request could not be sent", cause: error });
      this.failWith(error instanceof RpcError ? error : failed(), false);
    }
  }

  override onFailure(error: RpcError): void {
    this.failWith(error, false);
  }

  override onUnsent(error: RpcError, input: unknown): void {
    const { waitForReady, hasOthers } = this.owner.method.source;
    if (!waitForReady && !hasOthers) return this.failWith(error, false);
    this.phase = "waiting";
    this.id = 0;
    this.target = undefined;
    // Whoever has sessions must hear first that this one has ended.
    queueMicrotask(() => {
      if (!this.settled) this.find(input);
    });
  }

  override onRevoked(): void {
    this.lose(new RpcError({ code: "aborted", message: regionRevoked, origin: "local" }));
  }

  /** It can go no further: its owner is told that there can be no other, and its peer that nobody waits. */
  protected lose(error: RpcError): void {
    if (this.settled) return;
    this.failWith(error, true);
    this.cancel();
  }

  protected cancel(): void {
    this.target?.cancel(this);
  }

  /** Settled: whatever goes along is told, with the error if there is one. */
  protected settle(error?: RpcError): void {
    this.phase = "settled";
    this.session?.observer?.onSettled(error === undefined ? "ok" : error.code);
    this.tellObservers(error);
  }
}
