import { contextHere } from "../base/time/detached-context.ts";
import { itemsBoundTo } from "../call/bound-items.ts";
import { serveInside } from "../call/current-call.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import type { ItemSource } from "../contract/item-stream.ts";
import type { AnyMethod, MethodKind } from "../contract/method.ts";
import { answerError } from "../session/calls/call-errors.ts";
import { CalleeItems, type ServedItemsOwner } from "../session/streams/items-of-call.ts";
import { Pump } from "../session/streams/pump.ts";
import type { ItemDirections } from "../transfer/control/control-method.ts";
import type { PeerLink } from "../transfer/control/peer-link.ts";
import { TooLongError } from "../wire/extension.ts";
import { HandlerCall, StreamHandlerCall } from "./call-context.ts";
import type { Handler } from "./implement.ts";

/** The sides that send items, for each kind of method. */
export function directionsOf(kind: MethodKind): ItemDirections | undefined {
  switch (kind) {
    case "serverStream":
      return { inputs: false, outputs: true };
    case "clientStream":
      return { inputs: true, outputs: false };
    case "duplexStream":
      return { inputs: true, outputs: true };
    default:
      return undefined;
  }
}

/** Is notified of the ends of handlers. */
export interface HandlerEnds {
  onHandlerReturned(call: IncomingCall, session: PeerLink, value: unknown): void;
  onHandlerThrew(call: IncomingCall, session: PeerLink, error: unknown): void;
}

/** Runs the handlers of a stream method. The items that a handler returns are sent as fast as the peer takes them. */
export class StreamServer {
  readonly #method: AnyMethod;
  readonly #handler: Handler;
  readonly #path: string;
  readonly #ends: HandlerEnds;

  constructor(method: AnyMethod, handler: Handler, path: string, ends: HandlerEnds) {
    this.#method = method;
    this.#handler = directionsOf(method.kind)?.outputs ? withBoundItems(handler) : handler;
    this.#path = path;
    this.#ends = ends;
  }

  /** Starts the handler. The result is the outcome, as for a unary method, or the source of items for `send`. */
  serve(call: IncomingCall, session: PeerLink, input: unknown): unknown {
    const { items } = call;
    if (!(items instanceof CalleeItems)) throw new Error(`call ${call.id} of ${this.#path} has no items`);
    const arriving = items.start(this.#method);
    return arriving === undefined
      ? serveInside(
          call,
          this.#handler,
          input,
          new HandlerCall(call, session, this.#path, this.#method.errors),
        )
      : serveInside(
          call,
          this.#handler as (input: unknown, context: HandlerCall) => unknown,
          arriving,
          new StreamHandlerCall(call, session, this.#path, this.#method.errors, input),
        );
  }

  /** Sends the items that a handler has returned. The handler ends with the last item. */
  send(call: IncomingCall, session: PeerLink, result: unknown): void {
    if (result instanceof Promise)
      result.then(
        (source) => this.#send(call, session, source),
        (error) => this.#ends.onHandlerThrew(call, session, error),
      );
    else this.#send(call, session, result);
  }

  #send(call: IncomingCall, session: PeerLink, source: unknown): void {
    let outputs: OutputPump;
    try {
      outputs = new OutputPump(call, session, this.#method, source as ItemSource<unknown>, this.#ends);
    } catch (error) {
      return this.#ends.onHandlerThrew(call, session, error);
    }
    outputs.begin();
  }
}

/** The items of a handler are made in the async context in which the handler was called. */
function withBoundItems(handler: Handler): Handler {
  return (input, context) => {
    const here = contextHere();
    const source = handler(input, context);
    return source instanceof Promise
      ? source.then((late) => itemsBoundTo(here, late))
      : itemsBoundTo(here, source);
  };
}

/** The items that one handler sends. */
class OutputPump extends Pump implements ServedItemsOwner {
  readonly #call: IncomingCall;
  readonly #session: PeerLink;
  readonly #ends: HandlerEnds;
  #isTold = false;

  constructor(
    call: IncomingCall,
    session: PeerLink,
    { output }: AnyMethod,
    source: ItemSource<unknown>,
    ends: HandlerEnds,
  ) {
    super(source, output, "parsed");
    this.#call = call;
    this.#session = session;
    this.#ends = ends;
  }

  begin(): void {
    if (!this.#call.open) return this.onCallEnded();
    const items = this.#call.items as CalleeItems;
    items.owner = this;
    this.attach(items.sender as NonNullable<CalleeItems["sender"]>);
  }

  /** The call has ended, early or by the handler. The generator runs its `finally`. */
  onCallEnded(): void {
    this.stop().then(() => this.onSourceEnded());
  }

  protected override onSourceEnded(): void {
    if (this.#tell()) this.#ends.onHandlerReturned(this.#call, this.#session, undefined);
  }

  protected override onSourceFailed(error: unknown): void {
    void this.stop();
    if (this.#tell()) this.#ends.onHandlerThrew(this.#call, this.#session, error);
  }

  protected override onItemUnsendable(error: unknown): void {
    // Any other fault is the handler's, and its owner is notified.
    this.onSourceFailed(
      error instanceof TooLongError ? answerError(error, "an item could not be sent") : error,
    );
  }

  protected override onItemMisfit(issues: string): void {
    this.onSourceFailed(new TypeError(issues));
  }

  /** True the first time: a handler ends once. */
  #tell(): boolean {
    const isFirst = !this.#isTold;
    this.#isTold = true;
    return isFirst;
  }
}
