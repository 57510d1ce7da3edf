import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { RoomWaiter } from "../../base/flow/byte-budget.ts";
import type { Flushable, Turns } from "../../fabric/progress.ts";
import { frameKind, type RendezvousBody } from "../../wire/frame.ts";
import type { Outbox } from "../channel/outbox.ts";
import { inputItems, outputItems } from "../connection/rendezvous.ts";
import type { Session } from "../connection/session.ts";
import { itemCost, SendCredits } from "./item-credits.ts";

/** The source of a sender's items. */
export interface ItemProducer {
  /** The sender may be `ready` again. */
  onMaySend(): void;
}

/** The call of the items. It is notified of items that the peer pulls. */
export interface OfferListener {
  /** Called before the first item. @throws RpcError when the headers exceed a limit. */
  sendHeaders(): void;
  beginOffer(): void;
  endOffer(): void;
}

/** The most items sent without a pause. More would delay other streams and the event loop. */
const itemsInTurn = 256;

/** Thrown while an item is offered: the peer has not pulled earlier items, and there is no room for another. */
const noRoomToOffer = new Error();

/**
 * Sends the items of one direction of a stream. It has one producer. The class extends its credits, which saves an
 * object for each open stream.
 */
export class ItemSender extends SendCredits implements RoomWaiter {
  readonly #session: Session;
  readonly #turns: SendTurns;
  readonly #kind: typeof frameKind.input | typeof frameKind.output;
  readonly #callId: number;
  readonly #offers: OfferListener | undefined;
  /** The head and the offer of the items. Made with the first item: an idle stream has neither. */
  #head: { readonly kind: number; readonly method: 0; readonly callId: number; word: number } | undefined;
  #offer: ((body: Uint8Array) => RendezvousBody) | undefined;
  /** The number of items sent. */
  count = 0;
  #left = itemsInTurn;
  #producer: ItemProducer | undefined;
  stopped = false;
  /** The length of a long item that waits until the peer has pulled earlier items. 0: no item waits. */
  #waitingBytes = 0;

  /** `offers` is notified of the items that the peer pulls. */
  constructor(
    session: Session,
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

  /** Whether an item may be sent now. */
  get ready(): boolean {
    return !this.stopped && this.#left > 0 && this.#maySend && !this.#turns.congested;
  }

  /** The peer holds the sender back, because its consumer takes no items. */
  get heldBack(): boolean {
    return !this.#maySend;
  }

  get #maySend(): boolean {
    return this.some && this.#waitingBytes === 0;
  }

  /** Calls `producer.onMaySend` once, when the sender may be ready; never when it stops before. */
  wait(producer: ItemProducer): void {
    this.#producer = producer;
    if (this.#maySend) this.#turns.enroll(this);
  }

  /** The peer grants more credits. False for a grant that no honest peer sends. */
  addCredits(items: number, bytes: number): boolean {
    const hadSome = this.some;
    if (!this.add(items, bytes)) return false;
    this.#session.offers.renewItems(this.#itemsKey);
    if (!hadSome) this.#enrollProducer();
    return true;
  }

  /** Memory for kept items has become free. */
  onRoom(): boolean {
    if (!this.stopped && !this.#session.account.offers.fits(this.#waitingBytes)) return false;
    this.#waitingBytes = 0;
    this.#enrollProducer();
    return true;
  }

  #enrollProducer(): void {
    if (this.#maySend && this.#producer !== undefined && !this.stopped) this.#turns.enroll(this);
  }

  onTurn(): void {
    this.#left = itemsInTurn;
    const producer = this.#producer;
    this.#producer = undefined;
    if (!this.stopped) producer?.onMaySend();
  }

  /**
   * Sends an item. The sender must be `ready`, or have been when the item was asked for. False: there is no room for
   * the item, and the sender is not ready until there is. Throws EncodeError or RpcError.
   */
  send(value: unknown): boolean {
    const { outbox, services } = this.#session;
    if (this.#head === undefined) this.#offers?.sendHeaders();
    const head = (this.#head ??= { kind: this.#kind, method: 0, callId: this.#callId, word: 0 });
    head.word = this.count;
    this.#offer ??= (body) => this.#offerItem(body);
    try {
      outbox.value(head, value, this.#offer, undefined, undefined, this.mostInMessage);
    } catch (error) {
      if (error !== noRoomToOffer) throw error;
      this.#session.account.offers.budget.wait(this);
      return false;
    }
    this.count = (this.count + 1) >>> 0;
    this.#left--;
    this.spend(itemCost(outbox.valueBytes));
    services.counters.itemsSent++;
    services.progress.wake();
    return true;
  }

  stop(): void {
    this.stopped = true;
    this.#producer = undefined;
    if (this.#waitingBytes > 0) this.#session.account.offers.budget.leave(this);
  }

  get #itemsKey(): number {
    return this.#kind === frameKind.input ? inputItems(this.#callId) : outputItems(this.#callId);
  }

  #offerItem(body: Uint8Array): RendezvousBody {
    const { account, offers, bodyLimit } = this.#session;
    if (body.byteLength <= bodyLimit && !account.offers.fits(body.byteLength)) {
      this.#waitingBytes = body.byteLength;
      throw noRoomToOffer;
    }
    const rendezvous = offers.offerItem(this.#itemsKey, body, bodyLimit, () => this.#offers?.endOffer());
    this.#offers?.beginOffer();
    return rendezvous;
  }
}

/** The source of a stream's inputs: a pump from an iterable, or a writer. */
export interface InputSource {
  attach(sender: ItemSender): void;
  detach(): void;
  /** The stream has ended, with `error` if it failed. */
  close(error: RpcError | undefined): void;
}

/**
 * The order in which the streams of one session send items. Items are not urgent: they leave half of the session's
 * messages to requests and answers, and wait while other frames wait.
 */
export class SendTurns implements Flushable {
  flushQueued = false;
  readonly #outbox: Outbox;
  readonly #progress: Turns;
  #ring: Pick<ItemSender, "onTurn">[] = [];

  constructor(outbox: Outbox, progress: Turns) {
    this.#outbox = outbox;
    this.#progress = progress;
  }

  get congested(): boolean {
    return this.#outbox.congested;
  }

  /** `taker` has its turn after all that wait already. Then it may send as long as the turns are not `congested`. */
  enroll(taker: Pick<ItemSender, "onTurn">): void {
    this.#ring.push(taker);
    this.#progress.flushSoon(this);
    // Otherwise the completion of a message on its way starts the next turn.
    if (!this.congested) this.#progress.wake();
  }

  /** Called at the end of a turn of the loop. Items that the takers send leave in the next turn. */
  flush(): boolean {
    const ring = this.#ring;
    this.#ring = [];
    let taken = 0;
    while (taken < ring.length && !this.congested) (ring[taken++] as ItemSender).onTurn();
    // A generator yields its items after the turn.
    if (taken > 0) this.#progress.goOn();
    if (taken < ring.length) this.#ring = [...ring.slice(taken), ...this.#ring];
    if (this.#ring.length > 0) this.#progress.flushSoon(this);
    return false;
  }

  close(): void {
    this.#ring = [];
  }
}
