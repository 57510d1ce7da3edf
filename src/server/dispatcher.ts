import { RpcError } from "../base/errors/rpc-error.ts";
import { CallMetrics, type MethodMetrics } from "../base/observe/call-metrics.ts";
import { channels } from "../base/observe/channels.ts";
import { serveInside } from "../call/current-call.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import type { Middleware } from "../call/middleware.ts";
import type { AnyMethod } from "../contract/method.ts";
import { formatIssues, type Schema, type Validation, validate, voidSchema } from "../contract/schema.ts";
import { methodPath } from "../contract/service.ts";
import type { ItemDirections, ServedMethod } from "../transfer/control/control-method.ts";
import type { PeerLink } from "../transfer/control/peer-link.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import { methodKindNumbers, type ServiceTable, type TableMethod } from "../wire/handshake.ts";
import type { Admission } from "./admission.ts";
import { type AdmissionQueue, HandlerTimes } from "./admission-queue.ts";
import type { AdmittedRequest, Startable } from "./admitted-request.ts";
import { codeOfReason, DeclaredFailure, HandlerCall } from "./call-context.ts";
import type { HandlerErrorListener } from "./handler-error-log.ts";
import type { Handler, Implementation } from "./implement.ts";
import { handleThrough } from "./middleware-call.ts";
import { type ReplayCache, refuseUnknown } from "./replay-cache.ts";
import { directionsOf, type HandlerEnds, StreamServer } from "./stream-server.ts";

/** All services of an engine: the table that the handshake tells peers, and the methods by their numbers in it. */
export function dispatchTable(
  implementations: readonly Implementation[],
  onHandlerError: HandlerErrorListener,
  replays: ReplayCache,
  admission: Admission,
  metrics = new CallMetrics(),
  middleware: readonly Middleware[] = [],
): { readonly services: ServiceTable; readonly methods: readonly ServedMethod[] } {
  const services: [string, TableMethod[]][] = [];
  const methods: ServedMethod[] = [];
  const seen = new Set<string>();
  for (const { service, handlers, admission: options, middleware: own = [] } of implementations) {
    if (seen.has(service.name)) throw new TypeError(`serve: service "${service.name}" is implemented twice`);
    seen.add(service.name);
    const names = Object.keys(service.methods);
    services.push([service.name, names.map((name) => tableMethod(name, service.methods[name] as AnyMethod))]);
    const queue = admission.queueOf(service.name, options);
    const chain = [...middleware, ...own];
    for (const name of names) {
      const handler = handlers[name] as Handler;
      const served = chain.length === 0 ? handler : handleThrough(chain, service, name, handler);
      const method = service.methods[name] as AnyMethod;
      const metric = metrics.of(methodPath(service, name), "in");
      methods.push(new Dispatcher(method, metric, served, onHandlerError, replays, admission, queue));
    }
  }
  return { services, methods };
}

function tableMethod(name: string, { kind }: AnyMethod): TableMethod {
  return kind === "unary" ? name : [name, methodKindNumbers[kind]];
}

/**
 * One served method: validates the input, runs the handler, validates the output. It uses promises only where schemas
 * or handlers do.
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
  /** Where its requests wait; undefined: they start at once. */
  readonly #queue: AdmissionQueue<AdmittedRequest> | undefined;
  /** Runs its handlers where the method is a stream. */
  readonly #streams: StreamServer | undefined;
  /** Of what the call ends with. */
  readonly #output: Schema;
  /** Then only this side learns of a failure. */
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
    // The items of a stream have been checked one by one.
    this.#output = this.items?.outputs || method.kind === "oneWay" ? voidSchema : method.output;
    this.isOneWay = method.kind === "oneWay";
  }

  serve(request: IncomingCall, session: PeerLink, input: unknown): void {
    const call = request.identity === undefined ? request : this.#admit(request, request.identity, session);
    if (call === undefined) return;
    if (this.#queue === undefined) this.start(call, session, input);
    else this.#admission.enter(this.#queue, this, call, session, input);
  }

  start(call: IncomingCall, session: PeerLink, input: unknown): void {
    try {
      const checked = validate(this.#method.input, input);
      if (checked instanceof Promise) {
        checked.then(
          (verdict) => this.#run(call, session, verdict),
          (error) => this.onHandlerThrew(call, session, error),
        );
      } else this.#run(call, session, checked);
    } catch (error) {
      this.onHandlerThrew(call, session, error);
    }
  }

  /** The call to execute for a request that may be a retry; undefined when there is nothing to execute. */
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
    // Validation may have taken long: do not start a handler that nobody waits for.
    if (!call.open) return call.place?.leave();
    call.begin();
    try {
      const result =
        this.#streams === undefined
          ? serveInside(call, this.#handler, input.value, new HandlerCall(call, session, this.path))
          : this.#streams.serve(call, session, input.value);
      if (this.items?.outputs) this.#streams?.send(call, session, result);
      else if (isPromiseLike(result)) {
        result.then(
          (value) => this.onHandlerReturned(call, session, value),
          (error: unknown) => this.onHandlerThrew(call, session, error),
        );
      } else this.onHandlerReturned(call, session, result);
    } catch (error) {
      this.onHandlerThrew(call, session, error);
    }
  }

  /** The response leaves before the next handler starts. */
  onHandlerReturned(call: IncomingCall, session: PeerLink, value: unknown): void {
    this.#onReturned(call, session, value);
    call.place?.leave();
  }

  onHandlerThrew(call: IncomingCall, session: PeerLink, error: unknown): void {
    this.#onThrown(call, session, error);
    call.place?.leave();
  }

  #onReturned(call: IncomingCall, session: PeerLink, value: unknown): void {
    if (!call.open) return this.#onLate(call, session);
    try {
      const checked = validate(this.#output, this.isOneWay ? undefined : value);
      if (checked instanceof Promise) {
        checked.then(
          (verdict) => this.#answer(call, session, verdict),
          (error) => this.#onThrown(call, session, error),
        );
      } else this.#answer(call, session, checked);
    } catch (error) {
      this.#onThrown(call, session, error);
    }
  }

  #answer(call: IncomingCall, session: PeerLink, output: Validation<unknown>): void {
    if (output.issues !== undefined) {
      this.#onThrown(call, session, new TypeError(formatIssues("output", output.issues)));
    } else call.settle({ value: output.value });
  }

  #onThrown(call: IncomingCall, session: PeerLink, error: unknown): void {
    if (!call.open) {
      // Handlers often end with the reason of their signal.
      return this.#onLate(call, session);
    }
    if (this.isOneWay) return void call.settle({ error: unheard(error) });
    if (error instanceof DeclaredFailure) return this.#onDeclared(call, session, error);
    if (error instanceof RpcError) return this.#onRpcError(call, error);
    this.#report(call, error);
    call.settle({
      error: new RpcError({ code: "internal", message: "the handler failed", origin: "remote" }),
    });
  }

  /**
   * An RpcError that a handler throws keeps its code. Its reason and data may belong to another contract, as the error
   * of a nested call does. They are sent only when this method declares the reason and the data fit.
   */
  #onRpcError(call: IncomingCall, error: RpcError): void {
    const schema = error.reason === undefined ? undefined : this.#method.errors[error.reason];
    const settle = (verdict: Validation<unknown>) => {
      const declared = verdict.issues === undefined ? { reason: error.reason, data: verdict.value } : {};
      call.settle({ error: restate(error, declared) });
    };
    if (schema === undefined) return settle(undeclared);
    try {
      const checked = validate(schema, error.data);
      if (checked instanceof Promise) checked.then(settle, () => settle(undeclared));
      else settle(checked);
    } catch {
      settle(undeclared);
    }
  }

  #onDeclared(call: IncomingCall, session: PeerLink, failure: DeclaredFailure): void {
    const schema: Schema | undefined = this.#method.errors[failure.reason];
    if (schema === undefined) {
      return this.#onThrown(
        call,
        session,
        new TypeError(`${this.path} does not declare the error "${failure.reason}"`),
      );
    }
    const settle = (verdict: Validation<unknown>) => {
      if (verdict.issues !== undefined) {
        this.#onThrown(
          call,
          session,
          new TypeError(formatIssues(`data of ${failure.reason}`, verdict.issues)),
        );
        return;
      }
      call.settle({
        error: new RpcError({
          code: codeOfReason(failure.reason),
          message: failure.message,
          origin: "remote",
          reason: failure.reason,
          data: verdict.value,
        }),
      });
    };
    try {
      const checked = validate(schema, failure.data);
      if (checked instanceof Promise) checked.then(settle, (error) => this.#onThrown(call, session, error));
      else settle(checked);
    } catch (error) {
      this.#onThrown(call, session, error);
    }
  }

  /** A one-way call has failed, wherever: its caller does not hear of it. */
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
    try {
      this.#onHandlerError(error, where);
    } catch {
      // An error of the listener must not reach the caller.
    }
  }
}

/** What a handler of a one-way call threw, as its call ends with it. */
function unheard(error: unknown): RpcError {
  if (error instanceof RpcError) return error;
  return new RpcError({ code: "internal", message: "the handler failed", origin: "remote", cause: error });
}

const undeclared: Validation<unknown> = { issues: [] };

/** The error as it is sent, with the reason and data it may carry. */
function restate(
  error: RpcError,
  declared: { readonly reason?: string | undefined; readonly data?: unknown },
): RpcError {
  const prefix = `[${error.code}] `;
  return new RpcError({
    code: error.code,
    message: error.message.startsWith(prefix) ? error.message.slice(prefix.length) : error.message,
    origin: "remote",
    retryAfterMs: error.retryAfterMs,
    ...declared,
  });
}

function isPromiseLike(value: unknown): value is PromiseLike<unknown> {
  return (
    typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function"
  );
}
