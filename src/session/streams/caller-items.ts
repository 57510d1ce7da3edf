import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { CallItems } from "../../call/call-items.ts";
import type { ItemDirections } from "../../transfer/control/control-method.ts";
import { frameKind } from "../../wire/frame.ts";
import type { SessionContext } from "../connection/context.ts";
import { inputItems } from "../connection/rendezvous.ts";
import { type ArrivalsOwner, ItemArrivals } from "./item-arrivals.ts";
import type { ItemWindow } from "./item-credits.ts";
import type { ItemReceiver } from "./item-receiver.ts";
import { ItemSender } from "./item-sender.ts";
import type { Streams } from "./streams.ts";

/** The request that a caller's items belong to. */
export interface CallerOfItems {
  /** The number of the request. */
  readonly id: number;
  readonly directions: ItemDirections;
  readonly window: ItemWindow;
  /** Who takes the outputs. */
  readonly receiver: ItemReceiver;
  /** Nobody waits for the request any more. */
  readonly settled: boolean;
  /** An output could not be had. */
  onLost(error: RpcError): void;
}

/** The items of one request that has left, on its caller's side. */
export class CallerItems implements CallItems, ArrivalsOwner {
  readonly #caller: CallerOfItems;
  #session: SessionContext | undefined;
  #arrivals: ItemArrivals | undefined;
  #sender: ItemSender | undefined;

  constructor(caller: CallerOfItems) {
    this.#caller = caller;
  }

  /** The request lies with the outbox: outputs are granted, and inputs may follow. */
  open(streams: Streams): ItemSender | undefined {
    const { id: callId, directions, receiver, window } = this.#caller;
    const { session, turns } = streams;
    this.#session = session;
    if (directions.outputs)
      this.#arrivals = new ItemArrivals(session, frameKind.output, callId, this, receiver, window);
    if (directions.inputs) this.#sender = new ItemSender(session, turns, frameKind.input, callId);
    return this.#sender;
  }

  get drops(): boolean {
    return this.#caller.settled || this.#caller.receiver.discarded;
  }

  /** Frames of the stream that have come. */
  get signs(): number {
    return (this.#arrivals?.signs ?? 0) + this.#creditSigns;
  }

  #creditSigns = 0;

  /** Items that have come, and that have been sent. */
  get received(): number {
    return this.#arrivals?.count ?? 0;
  }

  get sent(): number {
    return this.#sender?.count ?? 0;
  }

  get heldBack(): boolean {
    return this.#sender?.heldBack ?? false;
  }

  /** No more inputs come. */
  endInputs(): void {
    const sender = this.#sender;
    if (sender === undefined || sender.stopped || this.#session?.state !== "open") return;
    const head = { kind: frameKind.inputsEnd, method: 0, callId: this.#caller.id, word: sender.count };
    sender.stop();
    this.#session.outbox.bare(head);
    this.#session.services.progress.wake();
  }

  /** Nobody waits for the request any more. */
  stop(): void {
    this.#sender?.stop();
    this.#arrivals?.close();
  }

  // ---- frames -----------------------------------------------------------------------------------------------------

  onItem(at: number, bodyBytes: number, flags: number): void {
    if (this.#arrivals === undefined) this.#session?.fault(`call ${this.#caller.id} takes no items`);
    else this.#arrivals.onItem(at, bodyBytes, flags);
  }

  onItemsEnd(count: number): void {
    if (this.#arrivals !== undefined) this.#arrivals.onEnd(count);
    else if (count !== 0)
      this.#session?.fault(`call ${this.#caller.id} has no items and ends after ${count}`);
  }

  onCredits(items: number, bytes: number): void {
    this.#creditSigns++;
    if (this.#sender === undefined) this.#session?.fault(`call ${this.#caller.id} sends no items`);
    else if (!this.#sender.addCredits(items, bytes))
      this.#session?.fault(`the credits of call ${this.#caller.id} overflow`);
  }

  onFinished(): void {
    this.stop();
    if (this.#sender !== undefined) this.#session?.offers.releaseItems(inputItems(this.#caller.id));
  }

  onPullBegun(): void {}

  onPullEnded(): void {}

  onLost(error: RpcError): void {
    this.#caller.onLost(error);
  }
}
