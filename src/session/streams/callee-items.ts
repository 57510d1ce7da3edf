import { RpcError } from "../../base/errors/rpc-error.ts";
import type { ServedItems } from "../../call/call-items.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";
import type { Schema } from "../../contract/schema.ts";
import type { ItemDirections } from "../../transfer/control/control-method.ts";
import { frameKind } from "../../wire/frame.ts";
import type { SessionContext } from "../connection/context.ts";
import { type IdleListener, IdleWatch } from "./idle-watch.ts";
import { type ArrivalsOwner, ItemArrivals } from "./item-arrivals.ts";
import type { ItemWindow } from "./item-credits.ts";
import { ItemReceiver, Items, type ReceiverOwner } from "./item-receiver.ts";
import { ItemSender } from "./item-sender.ts";
import type { SendTurns } from "./send-turns.ts";

/** The terms of the items of a handler's call. */
export interface ServedItemTerms {
  readonly items: Schema;
  readonly window: ItemWindow;
  readonly idleTimeoutMs: number;
}

/** The sender of the items of a handler's call. */
export interface ServedItemsOwner {
  onCallEnded(): void;
}

/** The items of one call, on the side that serves it. */
export class CalleeItems implements ServedItems, ArrivalsOwner, ReceiverOwner, IdleListener {
  /** Undefined: the callee sends no items. */
  readonly sender: ItemSender | undefined;
  /** Notified when the call ends, early or by its handler. */
  owner: ServedItemsOwner | undefined;
  readonly #session: SessionContext;
  readonly #call: IncomingCall;
  readonly #takesInputs: boolean;
  #receiver: ItemReceiver | undefined;
  #arrivals: ItemArrivals | undefined;
  #idle: IdleWatch | undefined;
  #creditFrames = 0;
  #inputsEnded = false;

  constructor(session: SessionContext, turns: SendTurns, call: IncomingCall, directions: ItemDirections) {
    this.#session = session;
    this.#call = call;
    this.#takesInputs = directions.inputs;
    if (directions.outputs) this.sender = new ItemSender(session, turns, frameKind.output, call.id, call);
  }

  /** The handler starts: grants the inputs and returns them. Undefined when the caller sends no items. */
  start({ items, window, idleTimeoutMs }: ServedItemTerms): Items | undefined {
    if (!this.#takesInputs) return undefined;
    const receiver = new ItemReceiver(items, this, true);
    this.#receiver = receiver;
    this.#arrivals = new ItemArrivals(this.#session, frameKind.input, this.#call.id, this, receiver, window);
    if (idleTimeoutMs < Number.POSITIVE_INFINITY)
      this.#idle = new IdleWatch(this.#session.services, idleTimeoutMs, this);
    if (this.#inputsEnded) receiver.end(undefined);
    return new Items(receiver);
  }

  // ---- the end ----------------------------------------------------------------------------------------------------

  onCallEnded(reason: RpcError | undefined): void {
    this.sender?.stop();
    this.#arrivals?.close();
    this.#idle?.stop();
    // Waiting inputs of a cancelled call are useless to the handler. The error is not: it ends the handler's loop.
    this.#receiver?.discard(reason);
    this.owner?.onCallEnded();
  }

  onFinished(): void {}

  get received(): number {
    return this.#arrivals?.count ?? 0;
  }

  get sent(): number {
    return this.sender?.count ?? 0;
  }

  get drops(): boolean {
    return !this.#call.open || this.#receiver?.discarded === true;
  }

  // ---- the idle bound ---------------------------------------------------------------------------------------------

  get waitsForPeer(): boolean {
    return this.#receiver?.awaited === true && !this.#inputsEnded;
  }

  get framesReceived(): number {
    return (this.#arrivals?.framesReceived ?? 0) + this.#creditFrames;
  }

  onIdle(): void {
    const message = "the caller sent no item for the whole idleTimeoutMs";
    this.#call.abort(new RpcError({ code: "deadline_exceeded", message, origin: "remote" }));
  }

  // ---- frames -----------------------------------------------------------------------------------------------------

  onItem(at: number, bodyBytes: number, flags: number): void {
    if (!this.#takesInputs) this.#session.fault(`call ${this.#call.id} takes no items`);
    else if (this.#arrivals !== undefined) this.#arrivals.onItem(at, bodyBytes, flags);
    else this.#session.fault(`an item of call ${this.#call.id} is beyond the credits`);
  }

  onItemsEnd(count: number): void {
    if (!this.#takesInputs || this.#inputsEnded)
      return this.#session.fault(`call ${this.#call.id} has no items that could end`);
    // The caller may have no items, and report that before the handler has started.
    if (this.#arrivals === undefined && count > 0)
      return this.#session.fault(`the items of call ${this.#call.id} end after ${count}, none came`);
    this.#inputsEnded = this.#arrivals?.onEnd(count) ?? true;
    if (this.#inputsEnded) this.#receiver?.end(undefined);
  }

  onCredits(items: number, bytes: number): void {
    this.#creditFrames++;
    if (this.sender === undefined) this.#session.fault(`call ${this.#call.id} sends no items`);
    else if (!this.sender.addCredits(items, bytes))
      this.#session.fault(`the credits of call ${this.#call.id} overflow`);
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
        ? new RpcError({
            code: "internal",
            message: "a schema of the contract threw",
            origin: "remote",
            cause,
          })
        : new RpcError({ code: "invalid_argument", message: issues, origin: "remote" });
    this.#call.abort(error);
    return error;
  }

  onReturn(): void {}
}
