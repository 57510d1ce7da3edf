import { RpcError } from "../base/errors/rpc-error.ts";
import { CallerItems, type CallerOfItems } from "../session/streams/caller-items.ts";
import type { ItemWindow } from "../session/streams/item-credits.ts";
import type { ItemReceiver } from "../session/streams/item-receiver.ts";
import type { ItemSender } from "../session/streams/item-sender.ts";
import { Streams } from "../session/streams/streams.ts";
import type { ItemDirections } from "../transfer/control/control-method.ts";
import type { Metadata } from "../wire/metadata/metadata.ts";
import { RequestAttempt, type RequestOwner } from "./request-attempt.ts";
import { type CallSession, wasTurnedAway } from "./session-source.ts";
import type { StreamTerms } from "./stream-terms.ts";

/** The stream that a request is made for. */
export interface StreamAttemptOwner extends RequestOwner {
  readonly terms: StreamTerms;
  readonly receiver: ItemReceiver;
  /** `Infinity` where the stream has no total time limit. */
  readonly endMs: number;
  /** What the server has said before its first item. */
  onAttemptHeaders(metadata: Metadata): void;
  /** The request has left: inputs may be sent by `sender`. */
  onAttemptLeft(attempt: StreamAttempt, sender: ItemSender | undefined): void;
  onAttemptValue(attempt: StreamAttempt, value: unknown): void;
  /** `isFinal`: there can be no other attempt. */
  onAttemptFailure(attempt: StreamAttempt, error: RpcError, isFinal: boolean): void;
}

/** One request of a stream. There is another only after one that failed before its first item. */
export class StreamAttempt extends RequestAttempt<StreamAttemptOwner> implements CallerOfItems {
  readonly #items: CallerItems;
  readonly #isFirst: boolean;

  constructor(owner: StreamAttemptOwner, isFirst: boolean) {
    super(owner, owner.endMs);
    this.#isFirst = isFirst;
    this.#items = new CallerItems(this);
  }

  override get items(): CallerItems {
    return this.#items;
  }

  get directions(): ItemDirections {
    return this.owner.terms.directions;
  }

  get window(): ItemWindow {
    return this.owner.terms.window;
  }

  get receiver(): ItemReceiver {
    return this.owner.receiver;
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
    return wasTurnedAway(this.target, this.id, error);
  }

  start(input: unknown): void {
    this.find(input);
  }

  protected override endMsIn(): number {
    return this.owner.endMs;
  }

  override onLeft(): void {
    const { context } = this.target as CallSession;
    const sender = this.#items.open(context.part(Streams));
    this.owner.onAttemptLeft(this, sender);
  }

  override onValue(value: unknown): void {
    this.settle();
    this.owner.onAttemptValue(this, value);
  }

  /** Its stream watches the time. */
  override onDeadline(): void {}

  onHeaders(metadata: Metadata): void {
    this.owner.onAttemptHeaders(metadata);
  }

  onLost(error: RpcError): void {
    this.lose(error);
  }

  /** Nobody waits for it any more: the peer is told. */
  giveUp(): void {
    if (this.settled) return;
    this.settle(new RpcError({ code: "cancelled", message: "the stream was cancelled", origin: "local" }));
    this.cancel();
  }

  protected override failWith(error: RpcError, isFinal: boolean): void {
    if (this.settled) return;
    const final = isFinal || this.observed;
    this.settle(error);
    this.owner.onAttemptFailure(this, error, final);
  }

  protected override settle(error?: RpcError): void {
    this.#items.stop();
    super.settle(error);
  }
}
