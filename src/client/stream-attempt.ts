import type { UnsentPhase } from "../call/made-call.ts";
import { type MetadataListener, OutgoingCall, regionRevoked } from "../call/outgoing-call.ts";
import type { ItemDirections } from "../control/control-method.ts";
import type { RpcCode } from "../errors/code.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Priority } from "../flow/priority.ts";
import { CallerItems, type CallerOfItems } from "../streams/caller-items.ts";
import type { ItemWindow } from "../streams/item-credits.ts";
import type { ItemReceiver } from "../streams/item-receiver.ts";
import type { ItemSender } from "../streams/item-sender.ts";
import { Streams } from "../streams/streams.ts";
import type { ClientMethod } from "./client-method.ts";
import { type CallSession, wasTurnedAway } from "./session-source.ts";

/** The stream that a request is made for. */
export interface StreamAttemptOwner {
  readonly method: ClientMethod;
  readonly directions: ItemDirections;
  readonly window: ItemWindow;
  readonly receiver: ItemReceiver;
  readonly startedMs: number;
  /** `Infinity` where the stream has no total time limit. */
  readonly endMs: number;
  readonly priority: Priority;
  readonly failsWhenFull: boolean;
  /** What the request carries. */
  readonly metadata: Uint8Array | undefined;
  readonly onMetadata: MetadataListener | undefined;
  /** The request has left: inputs may be sent by `sender`. */
  onAttemptLeft(attempt: StreamAttempt, sender: ItemSender | undefined): void;
  onAttemptValue(value: unknown): void;
  /** `isFinal`: there can be no other attempt. */
  onAttemptFailure(attempt: StreamAttempt, error: RpcError, isFinal: boolean): void;
}

/** One request of a stream. There is another only after one that failed before its first item. */
export class StreamAttempt extends OutgoingCall implements CallerOfItems {
  readonly #owner: StreamAttemptOwner;
  readonly #items: CallerItems;
  readonly #isFirst: boolean;
  #session: CallSession | undefined;

  constructor(owner: StreamAttemptOwner, isFirst: boolean) {
    super();
    this.#owner = owner;
    this.#isFirst = isFirst;
    this.#items = new CallerItems(this);
    this.startedMs = owner.startedMs;
    this.deadlineMs = owner.endMs;
    this.priority = owner.priority;
    this.failsWhenFull = owner.failsWhenFull;
    if (owner.metadata !== undefined) this.metadata = owner.metadata;
    if (owner.onMetadata !== undefined) this.listenForMetadata(owner.onMetadata);
  }

  override get items(): CallerItems {
    return this.#items;
  }

  get directions(): ItemDirections {
    return this.#owner.directions;
  }

  get window(): ItemWindow {
    return this.#owner.window;
  }

  get receiver(): ItemReceiver {
    return this.#owner.receiver;
  }

  override get methodPath(): string {
    return this.#owner.method.path;
  }

  override get peerName(): string {
    return this.#session?.peerName ?? this.#owner.method.source.name;
  }

  /** Until it has left, its stream is listed. */
  override get unsentPhase(): UnsentPhase | undefined {
    return undefined;
  }

  override get again(): boolean {
    return !this.#isFirst;
  }

  /** Whether the request has left. */
  get left(): boolean {
    return this.id !== 0;
  }

  /** Whether its peer takes no calls any more, and has begun nothing. */
  wasTurnedAway(error: RpcError): boolean {
    return wasTurnedAway(this.#session, this.id, error);
  }

  start(input: unknown): void {
    const { source } = this.#owner.method;
    const { engine } = source;
    let session: CallSession | Promise<CallSession>;
    try {
      session = source.session(this, input);
    } catch (error) {
      return this.#fail(error as RpcError, source.closed || (this.#isFirst && !engine.gate.calls));
    }
    if (session instanceof Promise) {
      this.phase = "connecting";
      this.connectingUs = this.elapsedUs(engine.clock.now());
      session.then(
        (opened) => this.#send(opened, input),
        (error: RpcError) => this.#fail(error, false),
      );
    } else this.#send(session, input);
  }

  #send(session: CallSession, input: unknown): void {
    if (this.settled) return;
    const { method, endMs } = this.#owner;
    const number = method.numberIn(session.methods);
    if (number < 0) {
      const message = method.unservedBy(session.methods);
      return this.#fail(new RpcError({ code: "unimplemented", message, origin: "local" }), true);
    }
    this.#session = session;
    try {
      session.request(this, number, endMs, input);
      // Given up from inside the encoding, before the request had left.
      if (this.settled) session.cancel(this);
    } catch (error) {
      const failed = new RpcError({
        code: "internal",
        message: "the request could not be sent",
        cause: error,
      });
      this.#fail(error instanceof RpcError ? error : failed, false);
    }
  }

  override onLeft(): void {
    const { context } = this.#session as CallSession;
    const sender = this.#items.open(context.part(Streams), this.id);
    this.#owner.onAttemptLeft(this, sender);
  }

  override onValue(value: unknown): void {
    this.#end("ok");
    this.tellObservers(undefined);
    this.#owner.onAttemptValue(value);
  }

  override onFailure(error: RpcError): void {
    this.#fail(error, false);
  }

  override onUnsent(error: RpcError, input: unknown): void {
    const { waitForReady, hasOthers } = this.#owner.method.source;
    if (!waitForReady && !hasOthers) return this.onFailure(error);
    this.#session = undefined;
    // Whoever has sessions must hear first that this one has ended.
    queueMicrotask(() => {
      if (!this.settled) this.start(input);
    });
  }

  /** Its stream watches the time. */
  override onDeadline(): void {}

  override onRevoked(): void {
    if (this.settled) return;
    this.#fail(new RpcError({ code: "aborted", message: regionRevoked, origin: "local" }), true);
    this.#session?.cancel(this);
  }

  onLost(error: RpcError): void {
    if (this.settled) return;
    this.#fail(error, true);
    this.#session?.cancel(this);
  }

  /** Nobody waits for it any more: the peer is told. */
  giveUp(): void {
    if (this.settled) return;
    const error = new RpcError({ code: "cancelled", message: "the stream was cancelled", origin: "local" });
    this.#end(error.code);
    this.tellObservers(error);
    this.#session?.cancel(this);
  }

  #fail(error: RpcError, isFinal: boolean): void {
    if (this.settled) return;
    const final = isFinal || this.observed;
    this.#end(error.code);
    this.tellObservers(error);
    this.#owner.onAttemptFailure(this, error, final);
  }

  #end(code: RpcCode | "ok"): void {
    this.phase = "settled";
    this.#items.stop();
    if (this.left) this.#session?.observer?.onSettled(code);
  }
}
