/*
 * The room `server`: admits the requests of peers, runs their handlers, and answers.
 * Promises: each request gets one answer, whatever its handler throws. Requests that wait are bounded in number, bytes
 * and time. A method with `replay` runs once at most.
 * Takes: incoming calls from `call`, items from `session`, schemas from `contract`, get and put from `transfer`.
 */

import { RpcError, type RpcErrorOptions, rpcErrorFields } from "../base/errors/rpc-error.ts";
import { callHook, isA } from "../base/errors/thrown.ts";
import { type CallMetrics, MethodMetrics } from "../base/observe/call-metrics.ts";
import { channels } from "../base/observe/channels.ts";
import { runDetached } from "../base/time/detached-context.ts";
import type { OperationFailure } from "../call/call-operations.ts";
import { serveInside } from "../call/current-call.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import type { Middleware } from "../call/middleware.ts";
import type { AnyMethod } from "../contract/method.ts";
import {
  formatIssues,
  type Validation,
  type Validator,
  validate,
  validatorOf,
  voidSchema,
} from "../contract/schema.ts";
import { isService, methodPath, servedName } from "../contract/service.ts";
import type { ItemDirections, ServedMethod } from "../transfer/control/control-method.ts";
import type { PeerLink } from "../transfer/control/peer-link.ts";
import { type BuiltinNumber, builtinMethods, builtinServices, firstBuiltin } from "../wire/builtin.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import { greetingLimits, methodKindNumbers, type TableMethod } from "../wire/handshake.ts";
import type { Admission } from "./admission.ts";
import { type AdmissionQueue, HandlerTimes } from "./admission-queue.ts";
import type { AdmittedRequest, Startable } from "./admitted-request.ts";
import { DeclaredFailure, HandlerCall } from "./call-context.ts";
import type { HandlerErrorListener } from "./handler-error-log.ts";
import { toldMessage } from "./hidden-addresses.ts";
import { type Handler, type Implementation, isImplementation } from "./implement.ts";
import { handleThrough } from "./middleware-call.ts";
import { type ReplayCache, refuseUnknown } from "./replay-cache.ts";
import { directionsOf, type HandlerEnds, StreamServer } from "./stream-server.ts";

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
 * The dispatchers of an engine's methods. An implementation that is served to several peers has one dispatcher for each
 * method, and so one queue of admission control.
 */
export class Dispatchers {
  readonly #terms: ServerTerms;
  readonly #methods = new WeakMap<Implementation, readonly ServedMethod[]>();
  /** Control methods by their number from `firstBuiltin` on, those of served built-in services included. */
  readonly controls: (ServedMethod | undefined)[] = [];

  constructor(terms: ServerTerms) {
    this.#terms = terms;
  }

  /** The methods of an implementation, in the order of its service's methods. */
  of(implementation: Implementation): readonly ServedMethod[] {
    let methods = this.#methods.get(implementation);
    if (methods === undefined) {
      methods = this.#make(implementation);
      this.#methods.set(implementation, methods);
    }
    return methods;
  }

  #make({
    service,
    instance,
    handlers,
    admission: options,
    middleware = [],
  }: Implementation): ServedMethod[] {
    const { onHandlerError, replays, admission, metrics } = this.#terms;
    const served = { name: servedName(service, instance) };
    const queue = admission.queueOf(served.name, options);
    const chain = [...this.#terms.middleware, ...middleware];
    return Object.keys(service.methods).map((name) => {
      const handler = handlers[name] as Handler;
      const run = chain.length === 0 ? handler : handleThrough(chain, service, name, handler);
      const method = service.methods[name] as AnyMethod;
      const metric = metrics.of(methodPath(served, name), "in");
      return new Dispatcher(method, metric, run, onHandlerError, replays, admission, queue);
    });
  }

  /**
   * Adds a built-in service to `controls`. No middleware, no admission control and no metrics: its methods are served in
   * any state of the engine.
   */
  addBuiltin({ service, handlers }: Implementation): void {
    const { onHandlerError, replays, admission } = this.#terms;
    for (const [name, method] of Object.entries(service.methods)) {
      const path = methodPath(service, name);
      const metric = new MethodMetrics(path, "in");
      const run = handlers[name] as Handler;
      const { number } = builtinMethods[path] as BuiltinNumber;
      const served = new Dispatcher(method, metric, run, onHandlerError, replays, admission, undefined);
      this.controls[number - firstBuiltin] = served;
    }
  }
}

/**
 * The services that one engine serves to its peers: the table for peers, and the methods by their numbers in that
 * table. Services can be added at any time and are never removed, so a number never changes.
 */
export class ServedServices {
  readonly services: [string, TableMethod[]][] = [];
  readonly methods: ServedMethod[] = [];
  /** In the order in which they were added. */
  readonly implementations: Implementation[] = [];
  readonly #dispatchers: Dispatchers;
  readonly #takesBuiltins: boolean;

  /** `takesBuiltins`: built-in services may be added, which all peers of the engine can call. Default true. */
  constructor(dispatchers: Dispatchers, takesBuiltins = true) {
    this.#dispatchers = dispatchers;
    this.#takesBuiltins = takesBuiltins;
  }

  /**
   * Adds all of `implementations`. An error adds none of them.
   *
   * @throws TypeError for a value that `implement` has not made, for a service that is served already, and for bounds
   *   of a queue that no request enters. RangeError for more services or methods than the table for peers can hold.
   */
  add(where: string, implementations: readonly Implementation[]): void {
    if (!Array.isArray(implementations))
      throw new TypeError(`${where}: serve must be an array of implementations made by implement()`);
    const seen = new Set(this.implementations.map(({ service, instance }) => servedName(service, instance)));
    let methods = this.methods.length;
    for (const [index, each] of implementations.entries()) {
      if (!isImplementation(each))
        throw new TypeError(`${where}: serve[${index}] must be made by implement()${hintFor(each)}`);
      const name = servedName(each.service, each.instance);
      if (builtinServices.has(name)) this.#assertBuiltin(where, each);
      if (seen.has(name)) throw new TypeError(`${where}: service "${name}" is implemented twice`);
      seen.add(name);
      methods += Object.keys(each.service.methods).length;
    }
    if (seen.size > greetingLimits.maxServices || methods > greetingLimits.maxMethods)
      throw new RangeError(
        `${where}: an engine serves at most ${greetingLimits.maxServices} services and ${greetingLimits.maxMethods} methods`,
      );
    const isBuiltin = ({ service, instance }: Implementation) =>
      builtinServices.has(servedName(service, instance));
    // Options may be refused here, so this comes before the first addition.
    for (const each of implementations) if (!isBuiltin(each)) this.#dispatchers.of(each);
    for (const each of implementations) {
      this.implementations.push(each);
      if (isBuiltin(each)) this.#dispatchers.addBuiltin(each);
      else this.#add(each);
    }
  }

  #assertBuiltin(where: string, { service }: Implementation): void {
    if (!this.#takesBuiltins)
      throw new TypeError(
        `${where}: service "${service.name}" is built in, and Engine.open and engine.serve take it`,
      );
    for (const [name, { kind }] of Object.entries(service.methods))
      if (builtinMethods[methodPath(service, name)]?.kind !== kind)
        throw new TypeError(
          `${where}: the name "${service.name}" is that of a built-in service with other methods`,
        );
  }

  #add(implementation: Implementation): void {
    const { service, instance } = implementation;
    this.services.push([
      servedName(service, instance),
      Object.entries(service.methods).map(([name, method]) => tableMethod(name, method as AnyMethod)),
    ]);
    this.methods.push(...this.#dispatchers.of(implementation));
  }
}

function tableMethod(name: string, { kind }: AnyMethod): TableMethod {
  return kind === "unary" ? name : [name, methodKindNumbers[kind]];
}

/**
 * One served method: validates the input, runs the handler, validates the output. It uses promises only when schemas or
 * handlers do.
 */
class Dispatcher implements ServedMethod, Startable, HandlerEnds {
  readonly metrics: MethodMetrics;
  readonly path: string;
  readonly items: ItemDirections | undefined;
  readonly times = new HandlerTimes();
  readonly #method: AnyMethod;
  readonly #handler: Handler;
  readonly #onHandlerError: HandlerErrorListener;
  readonly #replays: ReplayCache;
  readonly #admission: Admission;
  /** The queue of its requests. Undefined: they start at once. */
  readonly #queue: AdmissionQueue<AdmittedRequest> | undefined;
  /** Runs the handlers of a stream method. */
  readonly #streams: StreamServer | undefined;
  readonly #input: Validator;
  /** Checks the value of the answer. */
  readonly #output: Validator;
  /** Only this side learns that a one-way call has failed. */
  readonly isOneWay: boolean;

  constructor(
    method: AnyMethod,
    metrics: MethodMetrics,
    handler: Handler,
    onHandlerError: HandlerErrorListener,
    replays: ReplayCache,
    admission: Admission,
    queue: AdmissionQueue<AdmittedRequest> | undefined,
  ) {
    this.#method = method;
    this.metrics = metrics;
    this.path = metrics.method;
    this.#handler = handler;
    this.#onHandlerError = onHandlerError;
    this.#replays = replays;
    this.#admission = admission;
    this.#queue = queue;
    this.items = directionsOf(method.kind);
    this.#streams = this.items === undefined ? undefined : new StreamServer(method, handler, this.path, this);
    // The items of a stream have already been checked one by one.
    this.#input = validatorOf(method.input);
    this.#output = validatorOf(this.items?.outputs || method.kind === "oneWay" ? voidSchema : method.output);
    this.isOneWay = method.kind === "oneWay";
  }

  serve(request: IncomingCall, session: PeerLink, input: unknown): void {
    const call = request.identity === undefined ? request : this.#admit(request, request.identity, session);
    if (call === undefined) return;
    if (this.#queue === undefined) runDetached(this.#check, call, session, input);
    else this.#admission.enter(this.#queue, this, call, session, input);
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
    if (this.#method.replay) return this.#replays.admit(request, identity, session);
    if (identity.incarnation === 0n) return request;
    return refuseUnknown(request, `${this.path} keeps no answers`);
  }

  #run(call: IncomingCall, session: PeerLink, input: Validation<unknown>): void {
    if (input.issues !== undefined) {
      const message = formatIssues("input", input.issues);
      call.settle({ error: new RpcError({ code: "invalid_argument", message, origin: "remote" }) });
      return call.place?.leave();
    }
    // Validation may have taken long: no handler starts for a call that has ended.
    if (call.phase !== "open") return call.place?.leave();
    call.handler = "here";
    try {
      const result =
        this.#streams === undefined
          ? serveInside(
              call,
              this.#handler,
              input.value,
              new HandlerCall(call, session, this.path, this.#method.errors),
            )
          : this.#streams.serve(call, session, input.value);
      if (this.items?.outputs) this.#streams?.send(call, session, result);
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
    call.place?.leave();
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
      call.place?.leave();
    });
  }

  onHandlerThrew(call: IncomingCall, session: PeerLink, error: unknown): void {
    this.#onThrown(call, session, error);
    call.place?.leave();
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
      error: new RpcError({ code: "internal", message: "the handler failed", origin: "remote" }),
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
    callHook(() => this.#onHandlerError(error, where));
  }
}

/** The hint for a value that was passed instead of an implementation. */
function hintFor(value: unknown): string {
  if (Array.isArray(value)) return "; pass several as engine.serve(a, b), without an array";
  return isService(value) ? `; write implement(service, { … }) for the service "${value.name}"` : "";
}

/** The error with which a one-way call ends after its handler threw. */
function unheard(error: unknown): RpcError {
  const fields = rpcErrorFields(error);
  if (fields !== undefined) return new RpcError(fields);
  return new RpcError({ code: "internal", message: "the handler failed", origin: "remote", cause: error });
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
