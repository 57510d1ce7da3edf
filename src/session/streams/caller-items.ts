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
export interface RequestOfItems {
  /** The number of the request. */
  readonly id: number;
  /** The caller no longer waits for the request. */
  readonly settled: boolean;
  /** An output could not be pulled. */
  onLost(error: RpcError): void;
}

/** The stream of the request. */
export interface StreamOfItems {
  readonly terms: { readonly directions: ItemDirections; readonly window: ItemWindow };
  /** The receiver of the outputs. */
  readonly receiver: ItemReceiver;
}

/** The items of one sent request, on its caller's side. */
export class CallerItems implements CallItems, ArrivalsOwner {
  readonly #request: RequestOfItems;
  readonly #stream: StreamOfItems;
  #session: SessionContext | undefined;
  #arrivals: ItemArrivals | undefined;
  #sender: ItemSender | undefined;

  constructor(request: RequestOfItems, stream: StreamOfItems) {
    this.#request = request;
    this.#stream = stream;
  }

  /** The request lies with the outbox: grants the outputs. Inputs may follow. */
  open(streams: Streams): ItemSender | undefined {
    const { id: callId } = this.#request;
    const { receiver, terms } = this.#stream;
    const { directions, window } = terms;
    const { session, turns } = streams;
    this.#session = session;
    if (directions.outputs)
      this.#arrivals = new ItemArrivals(session, frameKind.output, callId, this, receiver, window);
    if (directions.inputs) this.#sender = new ItemSender(session, turns, frameKind.input, callId);
    return this.#sender;
  }

  get drops(): boolean {
    return this.#request.settled || this.#stream.receiver.discarded;
  }

  /** The number of the stream's frames that have come. */
  get framesReceived(): number {
    return (this.#arrivals?.framesReceived ?? 0) + this.#creditFrames;
  }

  #creditFrames = 0;

  /** The numbers of items that have come, and that have been sent. */
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
    const head = { kind: frameKind.inputsEnd, method: 0, callId: this.#request.id, word: sender.count };
    sender.stop();
    this.#session.outbox.bare(head);
    this.#session.services.progress.wake();
  }

  /** The caller no longer waits for the request. */
  stop(): void {
    this.#sender?.stop();
    this.#arrivals?.close();
  }

  // ---- frames -----------------------------------------------------------------------------------------------------

  onItem(at: number, bodyBytes: number, flags: number): void {
    if (this.#arrivals === undefined) this.#session?.fault(`call ${this.#request.id} takes no items`);
    else this.#arrivals.onItem(at, bodyBytes, flags);
  }

  onItemsEnd(count: number): void {
    if (this.#arrivals !== undefined) this.#arrivals.onEnd(count);
    else if (count !== 0)
      this.#session?.fault(`call ${this.#request.id} has no items and ends after ${count}`);
  }

  onCredits(items: number, bytes: number): void {
    this.#creditFrames++;
    if (this.#sender === undefined) this.#session?.fault(`call ${this.#request.id} sends no items`);
    else if (!this.#sender.addCredits(items, bytes))
      this.#session?.fault(`the credits of call ${this.#request.id} overflow`);
  }

  onFinished(): void {
    this.stop();
    if (this.#sender !== undefined) this.#session?.offers.releaseItems(inputItems(this.#request.id));
  }

  onPullBegun(): void {}

  onPullEnded(): void {}

  onLost(error: RpcError): void {
    this.#request.onLost(error);
  }
}
