import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { RendezvousBody } from "../../wire/frame.ts";
import { frameKind } from "../../wire/frame.ts";
import type { SessionContext } from "../connection/context.ts";
import { inputItems, outputItems } from "../connection/rendezvous.ts";
import { itemCost, SendCredits } from "./item-credits.ts";
import type { SendTurns, TurnTaker } from "./send-turns.ts";

/** Who has items to send. */
export interface ItemProducer {
  /** It may try again whether the sender is `ready`. */
  onMaySend(): void;
}

/** The call whose items are sent. It is told of items that the peer pulls. */
export interface OfferListener {
  /** Before the first item. @throws RpcError when the headers exceed a limit. */
  sendHeaders(): void;
  beginOffer(): void;
  endOffer(): void;
}

/** Items sent in one go. More would keep other streams, and the event loop, waiting. */
const itemsInTurn = 256;

/**
 * Sends the items of one direction of a stream. It has one producer. It extends its credits: each open stream is one
 * object less.
 */
export class ItemSender extends SendCredits implements TurnTaker {
  readonly #session: SessionContext;
  readonly #turns: SendTurns;
  readonly #kind: typeof frameKind.input | typeof frameKind.output;
  readonly #callId: number;
  readonly #offers: OfferListener | undefined;
  /** What each item is sent with. Made with the first: a stream that is idle has neither. */
  #head: { readonly kind: number; readonly method: 0; readonly callId: number; word: number } | undefined;
  #offer: ((body: Uint8Array) => RendezvousBody) | undefined;
  #count = 0;
  #left = itemsInTurn;
  #producer: ItemProducer | undefined;
  #stopped = false;

  /** `offers` hears of the items that the peer pulls. */
  constructor(
    session: SessionContext,
    turns: SendTurns,
    kind: typeof frameKind.input | typeof frameKind.output,
    callId: number,
    offers?: OfferListener,
  ) {
    super();
    this.#session = session;
    this.#turns = turns;
    this.#kind = kind;
    this.#callId = callId;
    this.#offers = offers;
  }

  /** Items sent so far. */
  get count(): number {
    return this.#count;
  }

  get stopped(): boolean {
    return this.#stopped;
  }

  /** Whether an item may be sent now. */
  get ready(): boolean {
    return !this.#stopped && this.#left > 0 && this.some && !this.#turns.congested;
  }

  /** The peer holds it back: its consumer takes nothing. */
  get heldBack(): boolean {
    return !this.some;
  }

  /** Calls `producer.onMaySend` once, when the sender may be ready; never when it stops before. */
  wait(producer: ItemProducer): void {
    this.#producer = producer;
    if (this.some) this.#turns.enroll(this);
  }

  /** The peer takes so much more. False when no peer can mean that. */
  addCredits(items: number, bytes: number): boolean {
    const hadSome = this.some;
    if (!this.add(items, bytes)) return false;
    if (!hadSome && this.some && this.#producer !== undefined && !this.#stopped) this.#turns.enroll(this);
    return true;
  }

  onTurn(): void {
    this.#left = itemsInTurn;
    const producer = this.#producer;
    this.#producer = undefined;
    if (!this.#stopped) producer?.onMaySend();
  }

  /** Sends an item. It must be `ready`, or have been since the item was asked for. Throws EncodeError or RpcError. */
  send(value: unknown): void {
    const { outbox, services } = this.#session;
    if (this.#head === undefined) this.#offers?.sendHeaders();
    const head = (this.#head ??= { kind: this.#kind, method: 0, callId: this.#callId, word: 0 });
    head.word = this.#count;
    outbox.value(head, value, (this.#offer ??= (body) => this.#offerItem(body)));
    this.#count = (this.#count + 1) >>> 0;
    this.#left--;
    this.spend(itemCost(outbox.valueBytes));
    services.counters.itemsSent++;
    services.progress.wake();
  }

  /** Nothing is sent any more. */
  stop(): void {
    this.#stopped = true;
    this.#producer = undefined;
  }

  #offerItem(body: Uint8Array): RendezvousBody {
    const { offers, bodyLimit } = this.#session;
    const key = this.#kind === frameKind.input ? inputItems(this.#callId) : outputItems(this.#callId);
    const rendezvous = offers.offerItem(key, body, bodyLimit, () => this.#offers?.endOffer());
    this.#offers?.beginOffer();
    return rendezvous;
  }
}

/** What sends the inputs of a stream: a pump from an iterable, or a writer. */
export interface InputSource {
  attach(sender: ItemSender): void;
  detach(): void;
  /** The stream is over: `error` unless it ended well. */
  close(error: RpcError | undefined): void;
}
