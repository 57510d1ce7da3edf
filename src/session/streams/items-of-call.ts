import { type RpcError, remoteError } from "../../base/errors/rpc-error.ts";
import type { CallItems, ServedItems } from "../../call/call-items.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";
import type { AnyMethod, MethodKind } from "../../contract/method.ts";
import type { ItemDirections } from "../../transfer/control/control-method.ts";
import { frameKind } from "../../wire/frame.ts";
import { inputItems } from "../connection/rendezvous.ts";
import type { Session } from "../connection/session.ts";
import { type IdleListener, IdleWatch } from "./idle-watch.ts";
import { type ArrivalsOwner, ItemArrivals } from "./item-arrivals.ts";
import type { ItemWindow } from "./item-credits.ts";
import { ItemReceiver, Items, type ReceiverOwner } from "./item-receiver.ts";
import { ItemSender, type SendTurns } from "./item-sender.ts";

/** The sides that send items, for each kind of method that has items. */
export const directionsOf: Readonly<Partial<Record<MethodKind, ItemDirections>>> = {
  serverStream: { inputs: false, outputs: true },
  clientStream: { inputs: true, outputs: false },
  duplexStream: { inputs: true, outputs: true },
};

/** The items of one call on one side: those that arrive, and those that this side sends. */
abstract class ItemsOfCall implements CallItems, ArrivalsOwner {
  /** Undefined before the request is sent. */
  protected session: Session | undefined;
  /** Undefined while no items may come. */
  protected arrivals: ItemArrivals | undefined;
  /** Undefined: this side sends no items. */
  sender: ItemSender | undefined;
  #creditFrames = 0;

  protected abstract readonly callId: number;
  abstract readonly drops: boolean;
  abstract onItemsEnd(count: number): void;
  abstract onFinished(): void;
  abstract onPullBegun(): void;
  abstract onPullEnded(): void;
  abstract onLost(error: RpcError): void;
  /** Why no item may come now. */
  protected abstract readonly noItems: string;

  /** The numbers of items that have come, and that have been sent. */
  get received(): number {
    return this.arrivals?.count ?? 0;
  }

  get sent(): number {
    return this.sender?.count ?? 0;
  }

  /** The number of the stream's frames that have come. */
  get framesReceived(): number {
    return (this.arrivals?.framesReceived ?? 0) + this.#creditFrames;
  }

  onItem(at: number, bodyBytes: number, flags: number): void {
    if (this.arrivals === undefined) this.session?.fault(this.noItems);
    else this.arrivals.onItem(at, bodyBytes, flags);
  }

  onCredits(items: number, bytes: number): void {
    this.#creditFrames++;
    if (this.sender === undefined) this.session?.fault(`call ${this.callId} sends no items`);
    else if (!this.sender.addCredits(items, bytes))
      this.session?.fault(`the credits of call ${this.callId} overflow`);
  }

  /** The call is over on this side. */
  protected stopItems(): void {
    this.sender?.stop();
    this.arrivals?.close();
  }
}

/** The request that a caller's items belong to. */
export interface RequestOfItems {
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
export class CallerItems extends ItemsOfCall {
  readonly #request: RequestOfItems;
  readonly #stream: StreamOfItems;

  constructor(request: RequestOfItems, stream: StreamOfItems) {
    super();
    this.#request = request;
    this.#stream = stream;
  }

  /** The request lies with the outbox: grants the outputs. Inputs may follow. */
  open(session: Session, turns: SendTurns): ItemSender | undefined {
    const { receiver, terms } = this.#stream;
    const { directions, window } = terms;
    this.session = session;
    if (directions.outputs)
      this.arrivals = new ItemArrivals(session, frameKind.output, this.callId, this, receiver, window);
    if (directions.inputs) this.sender = new ItemSender(session, turns, frameKind.input, this.callId);
    return this.sender;
  }

  protected get callId(): number {
    return this.#request.id;
  }

  get drops(): boolean {
    return this.#request.settled || this.#stream.receiver.discarded;
  }

  get heldBack(): boolean {
    return this.sender?.heldBack ?? false;
  }

  /** No more inputs come. */
  endInputs(): void {
    const { sender, session } = this;
    if (sender === undefined || sender.stopped || session?.state !== "open") return;
    const head = { kind: frameKind.inputsEnd, method: 0, callId: this.callId, word: sender.count };
    sender.stop();
    session.outbox.bare(head);
    session.services.progress.wake();
  }

  /** The caller no longer waits for the request. */
  stop(): void {
    this.stopItems();
  }

  protected get noItems(): string {
    return `call ${this.callId} takes no items`;
  }

  onItemsEnd(count: number): void {
    if (this.arrivals !== undefined) this.arrivals.onEnd(count);
    else if (count !== 0) this.session?.fault(`call ${this.callId} has no items and ends after ${count}`);
  }

  onFinished(): void {
    this.stopItems();
    if (this.sender !== undefined) this.session?.offers.releaseItems(inputItems(this.callId));
  }

  onPullBegun(): void {}

  onPullEnded(): void {}

  onLost(error: RpcError): void {
    this.#request.onLost(error);
  }
}

/** The sender of the items of a handler's call. */
export interface ServedItemsOwner {
  onCallEnded(): void;
}

/** The items of one call, on the side that serves it. */
export class CalleeItems extends ItemsOfCall implements ServedItems, ReceiverOwner, IdleListener {
  /** Notified when the call ends, early or by its handler. */
  owner: ServedItemsOwner | undefined;
  declare protected readonly session: Session;
  readonly #call: IncomingCall;
  readonly #takesInputs: boolean;
  #receiver: ItemReceiver | undefined;
  #idle: IdleWatch | undefined;
  #inputsEnded = false;

  constructor(session: Session, turns: SendTurns, call: IncomingCall, directions: ItemDirections) {
    super();
    this.session = session;
    this.#call = call;
    this.#takesInputs = directions.inputs;
    if (directions.outputs) this.sender = new ItemSender(session, turns, frameKind.output, call.id, call);
  }

  /** The handler starts: grants the inputs and returns them. Undefined when the caller sends no items. */
  start({ items, window, idleTimeoutMs }: AnyMethod): Items | undefined {
    if (!this.#takesInputs) return undefined;
    const receiver = new ItemReceiver(items, this, true);
    this.#receiver = receiver;
    this.arrivals = new ItemArrivals(this.session, frameKind.input, this.callId, this, receiver, window);
    if (idleTimeoutMs < Number.POSITIVE_INFINITY)
      this.#idle = new IdleWatch(this.session.services, idleTimeoutMs, this);
    if (this.#inputsEnded) receiver.end(undefined);
    return new Items(receiver);
  }

  protected get callId(): number {
    return this.#call.id;
  }

  get drops(): boolean {
    return !this.#call.open || this.#receiver?.discarded === true;
  }

  // ---- the end ----------------------------------------------------------------------------------------------------

  onCallEnded(reason: RpcError | undefined): void {
    this.stopItems();
    this.#idle?.stop();
    // Waiting inputs of a cancelled call are useless to the handler. The error is not: it ends the handler's loop.
    this.#receiver?.discard(reason);
    this.owner?.onCallEnded();
  }

  onFinished(): void {}

  // ---- the idle bound ---------------------------------------------------------------------------------------------

  get waitsForPeer(): boolean {
    return this.#receiver?.awaited === true && !this.#inputsEnded;
  }

  onIdle(): void {
    const message = "the caller sent no item for the whole idleTimeoutMs";
    this.#call.abort(remoteError("deadline_exceeded", message));
  }

  // ---- frames -----------------------------------------------------------------------------------------------------

  protected get noItems(): string {
    return this.#takesInputs
      ? `an item of call ${this.callId} is beyond the credits`
      : `call ${this.callId} takes no items`;
  }

  onItemsEnd(count: number): void {
    if (!this.#takesInputs || this.#inputsEnded)
      return this.session.fault(`call ${this.callId} has no items that could end`);
    // The caller may have no items, and report that before the handler has started.
    if (this.arrivals === undefined && count > 0)
      return this.session.fault(`the items of call ${this.callId} end after ${count}, none came`);
    this.#inputsEnded = this.arrivals?.onEnd(count) ?? true;
    if (this.#inputsEnded) this.#receiver?.end(undefined);
  }

  onPullBegun(): void {
    this.#call.beginTransfer();
  }

  onPullEnded(): void {
    this.#call.endTransfer();
  }

  onLost(error: RpcError): void {
    this.#call.abort(error);
  }

  // ---- what the handler does with its items -----------------------------------------------------------------------

  onMisfit(issues: string | undefined, cause?: unknown): RpcError {
    const error =
      issues === undefined
        ? remoteError("internal", "a schema of the contract threw", { cause })
        : remoteError("invalid_argument", issues);
    this.#call.abort(error);
    return error;
  }

  onReturn(): void {}
}
