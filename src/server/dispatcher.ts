/*
 * The room `server`: admits the requests of peers, runs their handlers, and answers.
 * Promises: each request gets one answer, whatever its handler throws. Requests that wait are bounded in number, bytes
 * and time. A method with `replay` runs once at most.
 * Takes: incoming calls from `call`, items from `session`, schemas from `contract`, get and put from `transfer`.
 */

import { RpcError, type RpcErrorOptions, remoteError, rpcErrorFields } from "../base/errors/rpc-error.ts";
import { callHook, isA } from "../base/errors/thrown.ts";
import type { CallMetrics, MethodMetrics } from "../base/observe/call-metrics.ts";
import { channels } from "../base/observe/channels.ts";
import { contextHere, runDetached } from "../base/time/detached-context.ts";
import { itemsBoundTo } from "../call/bound-items.ts";
import type { OperationFailure } from "../call/call-operations.ts";
import { serveInside } from "../call/current-call.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import type { Middleware } from "../call/middleware.ts";
import type { ItemSource } from "../contract/item-stream.ts";
import type { AnyMethod } from "../contract/method.ts";
import {
  formatIssues,
  type Validation,
  type Validator,
  validate,
  validatorOf,
  voidSchema,
} from "../contract/schema.ts";
import { answerError } from "../session/calls/call-errors.ts";
import { CalleeItems, directionsOf, type ServedItemsOwner } from "../session/streams/items-of-call.ts";
import { Pump } from "../session/streams/pump.ts";
import type { ItemDirections, ServedMethod } from "../transfer/control/control-method.ts";
import type { PeerLink } from "../transfer/control/peer-link.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import { TooLongError } from "../wire/extension.ts";
import type { Admission, AdmittedRequest, Startable } from "./admission.ts";
import { type AdmissionQueue, HandlerTimes } from "./admission-queue.ts";
import { DeclaredFailure, HandlerCall, StreamHandlerCall } from "./call-context.ts";
import type { HandlerErrorListener } from "./handler-error-log.ts";
import { toldMessage } from "./hidden-addresses.ts";
import type { Handler } from "./implement.ts";
import { type ReplayCache, refuseUnknown } from "./replay-cache.ts";

/** The settings that the handlers of an engine share. */
export interface ServerTerms {
  readonly onHandlerError: HandlerErrorListener;
  readonly replays: ReplayCache;
  readonly admission: Admission;
  readonly metrics: CallMetrics;
  /** Runs around every handler, outside the middleware of its service. */
  readonly middleware: readonly Middleware[];
}

/**
 * One served method: validates the input, runs the handler, validates the output. It uses promises only when schemas or
 * handlers do.
 */
export class Dispatcher implements ServedMethod, Startable {
  readonly metrics: MethodMetrics;
  readonly path: string;
  readonly items: ItemDirections | undefined;
  readonly times = new HandlerTimes();
  readonly #method: AnyMethod;
  readonly #handler: Handler;
  readonly #terms: ServerTerms;
  /** The queue of its requests. Undefined: they start at once. */
  readonly #queue: AdmissionQueue<AdmittedRequest> | undefined;
  readonly #input: Validator;
  readonly #output: Validator;
  /** Only this side learns that a one-way call has failed. */
  readonly isOneWay: boolean;

  constructor(
    terms: ServerTerms,
    method: AnyMethod,
    metrics: MethodMetrics,
    handler: Handler,
    queue: AdmissionQueue<AdmittedRequest> | undefined,
  ) {
    this.#terms = terms;
    this.#method = method;
    this.metrics = metrics;
    this.path = metrics.method;
    this.#queue = queue;
    this.items = directionsOf[method.kind];
    this.#handler = this.items?.outputs ? withBoundItems(handler) : handler;
    // The items of a stream have already been checked one by one.
    this.#input = validatorOf(method.input);
    this.#output = validatorOf(this.items?.outputs || method.kind === "oneWay" ? voidSchema : method.output);
    this.isOneWay = method.kind === "oneWay";
  }

  serve(request: IncomingCall, session: PeerLink, input: unknown): void {
    const call = request.identity === undefined ? request : this.#admit(request, request.identity, session);
    if (call === undefined) return;
    if (this.#queue === undefined) runDetached(this.#check, call, session, input);
    else this.#terms.admission.enter(this.#queue, this, call, session, input);
  }

  /**
   * Runs each call in its own async context, from the schema of its input to its answer. So later calls of the same
   * turn do not see what the code of this call enters there.
   */
  start(call: IncomingCall, session: PeerLink, input: unknown): void {
    runDetached(this.#check, call, session, input);
  }

  readonly #check = (call: IncomingCall, session: PeerLink, input: unknown): void => {
    try {
      const checked = this.#input.validate(input);
      if (checked instanceof Promise) {
        checked
          .then((verdict) => this.#run(call, session, verdict))
          .catch((error: unknown) => this.onHandlerThrew(call, session, error));
      } else this.#run(call, session, checked);
    } catch (error) {
      this.onHandlerThrew(call, session, error);
    }
  };

  /** The call to execute for a request that may be a retry. Undefined when there is no call to execute. */
  #admit(request: IncomingCall, identity: CallIdentity, session: PeerLink): IncomingCall | undefined {
    if (this.#method.replay) return this.#terms.replays.admit(request, identity, session);
    if (identity.incarnation === 0n) return request;
    return refuseUnknown(request, `${this.path} keeps no answers`);
  }

  #run(call: IncomingCall, session: PeerLink, input: Validation<unknown>): void {
    if (input.issues !== undefined) {
      const message = formatIssues("input", input.issues);
      call.settle({ error: remoteError("invalid_argument", message) });
      return call.awaits?.leave?.();
    }
    // Validation may have taken long: no handler starts for a call that has ended.
    if (call.phase !== "open") return call.awaits?.leave?.();
    call.handler = "here";
    try {
      const result =
        this.items === undefined
          ? serveInside(
              call,
              this.#handler,
              input.value,
              new HandlerCall(call, session, this.path, this.#method.errors),
            )
          : this.#serveStream(call, session, input.value);
      if (this.items?.outputs) this.#sendItems(call, session, result);
      else if (typeof (result as PromiseLike<unknown> | null | undefined)?.then === "function") {
        (result as PromiseLike<unknown>).then(
          (value) => this.onHandlerReturned(call, session, value),
          (error: unknown) => this.onHandlerThrew(call, session, error),
        );
      } else this.onHandlerReturned(call, session, result);
    } catch (error) {
      this.onHandlerThrew(call, session, error);
    }
  }

  /** Starts the handler of a stream. The result is the outcome, or the source of items for `#sendItems`. */
  #serveStream(call: IncomingCall, session: PeerLink, input: unknown): unknown {
    const { items } = call;
    if (!(items instanceof CalleeItems)) throw new Error(`call ${call.id} of ${this.path} has no items`);
    const { errors } = this.#method;
    const arriving = items.start(this.#method);
    if (arriving === undefined)
      return serveInside(call, this.#handler, input, new HandlerCall(call, session, this.path, errors));
    const context = new StreamHandlerCall(call, session, this.path, errors, input);
    return serveInside<unknown, HandlerCall>(call, this.#handler, arriving, context);
  }

  /** Sends the items that a handler has returned, as fast as the peer takes them. Its last item ends the handler. */
  #sendItems(call: IncomingCall, session: PeerLink, result: unknown): void {
    if (result instanceof Promise) {
      result.then(
        (source) => this.#sendItems(call, session, source),
        (error) => this.onHandlerThrew(call, session, error),
      );
      return;
    }
    let outputs: OutputPump;
    try {
      outputs = new OutputPump(this, call, session, this.#method, result as ItemSource<unknown>);
    } catch (error) {
      return this.onHandlerThrew(call, session, error);
    }
    outputs.begin();
  }

  /**
   * The answer waits for operations on the caller's memory that the handler has started but not awaited. If one of them
   * fails, the call fails. The response leaves before the next handler starts.
   */
  onHandlerReturned(call: IncomingCall, session: PeerLink, value: unknown): void {
    const forgotten = call.started?.handlerReturned();
    if (forgotten !== undefined) return this.#onceOver(forgotten, call, session, value);
    if (call.phase !== "open") this.#onLate(call, session);
    else
      try {
        const checked = this.#output.validate(this.isOneWay ? undefined : value);
        if (checked instanceof Promise) {
          checked
            .then((verdict) => this.#endWithChecked(call, session, verdict))
            .catch((error: unknown) => this.#onThrown(call, session, error));
        } else if (checked.issues === undefined) call.settle({ value: checked.value });
        else this.#endWithChecked(call, session, checked);
      } catch (error) {
        this.#onThrown(call, session, error);
      }
    call.awaits?.leave?.();
  }

  #onceOver(
    forgotten: Promise<OperationFailure | undefined>,
    call: IncomingCall,
    session: PeerLink,
    value: unknown,
  ): void {
    void forgotten.then((failure) => {
      if (failure === undefined) return this.onHandlerReturned(call, session, value);
      this.#onForgottenFailed(call, session, failure.error);
      call.awaits?.leave?.();
    });
  }

  onHandlerThrew(call: IncomingCall, session: PeerLink, error: unknown): void {
    this.#onThrown(call, session, error);
    call.awaits?.leave?.();
  }

  /** The handler does not see the failure, so every such error is reported to its owner. */
  #onForgottenFailed(call: IncomingCall, session: PeerLink, error: unknown): void {
    // An error that is not an RpcError is reported as an error of the handler.
    if (call.open && rpcErrorFields(error) !== undefined && !this.isOneWay) this.#report(call, error);
    this.#onThrown(call, session, error);
  }

  #endWithChecked(call: IncomingCall, session: PeerLink, output: Validation<unknown>): void {
    if (output.issues !== undefined) {
      this.#onThrown(call, session, new TypeError(formatIssues("output", output.issues)));
    } else call.settle({ value: output.value });
  }

  /** `error` may be any value. Only functions that never throw inspect it. */
  #onThrown(call: IncomingCall, session: PeerLink, error: unknown): void {
    if (!call.open) {
      // Handlers often end with the reason of their signal.
      return this.#onLate(call, session);
    }
    if (this.isOneWay) return void call.settle({ error: unheard(error) });
    const fields = rpcErrorFields(error);
    if (fields !== undefined && isA(error, DeclaredFailure)) return this.#onDeclared(call, session, fields);
    if (fields !== undefined) return this.#onRpcError(call, error, fields);
    this.#report(call, error);
    call.settle({
      error: remoteError("internal", "the handler failed"),
    });
  }

  /**
   * An RpcError from a handler keeps its code. Its reason and data may belong to another contract, as with the error of
   * a nested call. They are sent only when this method declares the reason and the data fit. Addresses in the message
   * of a nested call's error are for the operator alone.
   */
  #onRpcError(call: IncomingCall, error: unknown, fields: RpcErrorOptions): void {
    const { reason } = fields;
    const message = toldMessage(fields);
    if (message !== fields.message) this.#report(call, error);
    const schema = reason === undefined ? undefined : this.#method.errors[reason]?.data;
    const settle = (verdict: Validation<unknown>) => {
      const declared = verdict.issues === undefined ? { reason, data: verdict.value } : {};
      call.settle({ error: restate(fields, declared, message) });
    };
    if (schema === undefined) return settle(undeclared);
    try {
      const checked = validate(schema, fields.data);
      if (checked instanceof Promise) checked.then(settle).catch(() => settle(undeclared));
      else settle(checked);
    } catch {
      settle(undeclared);
    }
  }

  #onDeclared(call: IncomingCall, session: PeerLink, failure: RpcErrorOptions): void {
    const reason = failure.reason as string;
    const schema = this.#method.errors[reason]?.data;
    if (schema === undefined) {
      const undeclaredReason = new TypeError(`${this.path} does not declare the error "${reason}"`);
      return this.#onThrown(call, session, undeclaredReason);
    }
    const settle = (verdict: Validation<unknown>) => {
      if (verdict.issues === undefined)
        call.settle({ error: restate(failure, { reason, data: verdict.value }) });
      else this.#onThrown(call, session, new TypeError(formatIssues(`data of ${reason}`, verdict.issues)));
    };
    try {
      const checked = validate(schema, failure.data);
      if (checked instanceof Promise)
        checked.then(settle).catch((error: unknown) => this.#onThrown(call, session, error));
      else settle(checked);
    } catch (error) {
      this.#onThrown(call, session, error);
    }
  }

  /** Reports the failure of a one-way call, because its caller receives no error. */
  onFailed(call: IncomingCall, error: RpcError): void {
    if (this.isOneWay) this.#report(call, error.code === "internal" ? (error.cause ?? error) : error);
  }

  onThrown(call: IncomingCall, error: unknown): void {
    this.#report(call, error);
  }

  #onLate(call: IncomingCall, session: PeerLink): void {
    session.services.counters.lateResults++;
    if (channels.lateResult.hasSubscribers)
      channels.lateResult.publish({ method: this.path, callId: call.id });
  }

  #report(call: IncomingCall, error: unknown): void {
    const where = { method: this.path, callId: call.id, began: call.handler !== "none" };
    if (channels.handlerFailed.hasSubscribers) channels.handlerFailed.publish({ ...where, error });
    callHook(() => this.#terms.onHandlerError(error, where));
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
  readonly #dispatcher: Dispatcher;
  readonly #call: IncomingCall;
  readonly #session: PeerLink;
  #hasEnded = false;

  constructor(
    dispatcher: Dispatcher,
    call: IncomingCall,
    session: PeerLink,
    { output }: AnyMethod,
    source: ItemSource<unknown>,
  ) {
    super(source, output, "parsed");
    this.#dispatcher = dispatcher;
    this.#call = call;
    this.#session = session;
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
    if (this.#endsNow()) this.#dispatcher.onHandlerReturned(this.#call, this.#session, undefined);
  }

  protected override onSourceFailed(error: unknown): void {
    void this.stop();
    if (this.#endsNow()) this.#dispatcher.onHandlerThrew(this.#call, this.#session, error);
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
  #endsNow(): boolean {
    const isFirst = !this.#hasEnded;
    this.#hasEnded = true;
    return isFirst;
  }
}

/** The error with which a one-way call ends after its handler threw. */
function unheard(error: unknown): RpcError {
  const fields = rpcErrorFields(error);
  if (fields !== undefined) return new RpcError(fields);
  return remoteError("internal", "the handler failed", { cause: error });
}

const undeclared: Validation<unknown> = { issues: [] };

/** The error for the wire, with its permitted reason and data. */
function restate(
  { code, message, retryAfterMs }: RpcErrorOptions,
  declared: { readonly reason?: string | undefined; readonly data?: unknown },
  told = message,
): RpcError {
  return new RpcError({ code, message: told, origin: "remote", retryAfterMs, ...declared });
}
