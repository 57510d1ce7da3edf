import { serveInside } from "../call/current-call.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import type { ItemSource } from "../contract/item-stream.ts";
import type { AnyMethod, MethodKind } from "../contract/method.ts";
import type { ItemDirections } from "../control/control-method.ts";
import type { PeerLink } from "../control/peer-link.ts";
import { CalleeItems, type ServedItemsOwner } from "../streams/callee-items.ts";
import { Pump, type PumpOwner } from "../streams/pump.ts";
import { HandlerCall, StreamHandlerCall } from "./call-context.ts";
import type { Handler } from "./implement.ts";

/** Who sends items in the calls of each kind of method. */
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

/** Runs the handlers of a method that is a stream. What a handler returns for items is sent as fast as they are taken. */
export class StreamServer {
  readonly #method: AnyMethod;
  readonly #handler: Handler;
  readonly #path: string;
  readonly #sends: boolean;

  constructor(method: AnyMethod, handler: Handler, path: string) {
    this.#method = method;
    this.#handler = handler;
    this.#path = path;
    this.#sends = method.kind !== "clientStream";
  }

  /**
   * Starts the handler. What it returns is the handler's outcome as for a unary method: the answer, or a promise of it
   * that settles when the last item has been sent.
   */
  serve(call: IncomingCall, session: PeerLink, input: unknown): unknown {
    const { items } = call;
    if (!(items instanceof CalleeItems)) throw new Error(`call ${call.id} of ${this.#path} has no items`);
    const arriving = items.start(this.#method);
    const result =
      arriving === undefined
        ? serveInside(call, this.#handler, input, new HandlerCall(call, session, this.#path))
        : serveInside(
            call,
            this.#handler as (input: unknown, context: HandlerCall) => unknown,
            arriving,
            new StreamHandlerCall(call, session, this.#path, input),
          );
    if (!this.#sends) return result;
    return new Outputs(call, items, this.#method, result).sent;
  }
}

/** The items that one handler sends. */
class Outputs implements PumpOwner, ServedItemsOwner {
  /** Settles when the handler has ended: with an error when it failed. */
  readonly sent: Promise<void>;
  readonly #call: IncomingCall;
  readonly #items: CalleeItems;
  readonly #method: AnyMethod;
  #pump: Pump | undefined;
  /** Also with a rejected promise: what rejects would be kept by each open stream. */
  #resolve!: (outcome?: Promise<never>) => void;

  constructor(call: IncomingCall, items: CalleeItems, method: AnyMethod, result: unknown) {
    this.#call = call;
    this.#items = items;
    this.#method = method;
    this.sent = new Promise((resolve) => {
      this.#resolve = resolve as (outcome?: Promise<never>) => void;
    });
    if (result instanceof Promise)
      result.then(
        (source) => this.#begin(source),
        (error) => this.#fail(error),
      );
    else this.#begin(result);
  }

  #begin(source: unknown): void {
    try {
      const { output } = this.#method;
      this.#pump = new Pump(source as ItemSource<unknown>, output, "parsed", this, this.#call);
    } catch (error) {
      return this.#fail(error);
    }
    if (!this.#call.open) return this.onCallEnded();
    this.#items.owner = this;
    this.#pump.attach(this.#items.sender as NonNullable<CalleeItems["sender"]>);
  }

  /** The call has ended against the handler's will: its generator runs its `finally`. */
  onCallEnded(): void {
    this.#pump?.stop().then(() => this.#resolve());
  }

  #fail(error: unknown): void {
    const failed = Promise.reject(error);
    // Nobody hears of it where the items have ended before.
    failed.catch(() => {});
    this.#resolve(failed);
  }

  onSourceEnded(): void {
    this.#resolve();
  }

  onSourceFailed(error: unknown): void {
    this.#fail(error);
    void this.#pump?.stop();
  }

  onItemMisfit(issues: string): void {
    this.onSourceFailed(new TypeError(issues));
  }
}
