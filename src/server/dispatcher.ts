import { serveInside } from "../call/current-call.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import { formatIssues, type Schema, type Validation, validate } from "../contract/schema.ts";
import { methodPath } from "../contract/service.ts";
import type { AnyMethod } from "../contract/unary.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { CallMetrics, type MethodMetrics } from "../observe/call-metrics.ts";
import { channels } from "../observe/channels.ts";
import type { Session } from "../session/session.ts";
import type { ServedMethod } from "../session/session-host.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import type { ServiceTable } from "../wire/handshake.ts";
import type { Admission } from "./admission.ts";
import { HandlerCall } from "./call-context.ts";
import { codeOfReason, DeclaredFailure } from "./declared-failure.ts";
import type { Entrant, Startable } from "./entrant.ts";
import { HandlerTimes } from "./handler-times.ts";
import type { Handler, Implementation } from "./implement.ts";
import type { Lane } from "./lane.ts";
import { type ReplayCache, refuseUnknown } from "./replay-cache.ts";

/** Told of everything a handler throws that its contract does not declare: the caller gets `internal` without a word of it. */
export type HandlerErrorListener = (
  error: unknown,
  call: { readonly method: string; readonly callId: number },
) => void;

/** All services of an engine: the table it tells its peers, and the methods by the numbers that table gives them. */
export function dispatchTable(
  implementations: readonly Implementation[],
  onHandlerError: HandlerErrorListener,
  replays: ReplayCache,
  admission: Admission,
  metrics = new CallMetrics(),
): { readonly services: ServiceTable; readonly methods: readonly ServedMethod[] } {
  const services: [string, string[]][] = [];
  const methods: ServedMethod[] = [];
  const seen = new Set<string>();
  for (const { service, handlers, admission: options } of implementations) {
    if (seen.has(service.name)) throw new TypeError(`serve: service "${service.name}" is implemented twice`);
    seen.add(service.name);
    const names = Object.keys(service.methods);
    services.push([service.name, names]);
    const gate = { admission, lane: admission.laneOf(service.name, options) };
    for (const name of names) {
      const method = service.methods[name] as AnyMethod;
      const metric = metrics.of(methodPath(service, name), "in");
      methods.push(new Dispatcher(method, metric, handlers[name] as Handler, onHandlerError, replays, gate));
    }
  }
  return { services, methods };
}

/** Who lets a service's requests in, and the lane in which they wait; without a lane they do not. */
interface Gate {
  readonly admission: Admission;
  readonly lane: Lane<Entrant> | undefined;
}

/** One served method: input in, checked; handler; output out, checked. Promises only where the schemas or the handler bring them. */
class Dispatcher implements ServedMethod, Startable {
  readonly metrics: MethodMetrics;
  readonly path: string;
  readonly times = new HandlerTimes();
  readonly #method: AnyMethod;
  readonly #handler: Handler;
  readonly #onHandlerError: HandlerErrorListener;
  readonly #replays: ReplayCache;
  readonly #gate: Gate;

  constructor(
    method: AnyMethod,
    metrics: MethodMetrics,
    handler: Handler,
    onHandlerError: HandlerErrorListener,
    replays: ReplayCache,
    gate: Gate,
  ) {
    this.#method = method;
    this.metrics = metrics;
    this.path = metrics.method;
    this.#handler = handler;
    this.#onHandlerError = onHandlerError;
    this.#replays = replays;
    this.#gate = gate;
  }

  serve(request: IncomingCall, session: Session, input: unknown): void {
    const call = request.identity === undefined ? request : this.#admit(request, request.identity, session);
    if (call === undefined) return;
    const { admission, lane } = this.#gate;
    if (lane === undefined) this.start(call, session, input);
    else admission.enter(lane, this, call, session, input);
  }

  start(call: IncomingCall, session: Session, input: unknown): void {
    try {
      const checked = validate(this.#method.input, input);
      if (checked instanceof Promise) {
        checked.then(
          (verdict) => this.#run(call, session, verdict),
          (error) => this.#onHandlerThrew(call, session, error),
        );
      } else this.#run(call, session, checked);
    } catch (error) {
      this.#onHandlerThrew(call, session, error);
    }
  }

  /** What is to be executed for a request that may be tried again, or was. */
  #admit(request: IncomingCall, identity: CallIdentity, session: Session): IncomingCall | undefined {
    if (this.#method.replay) return this.#replays.admit(request, identity, session);
    if (identity.incarnation === 0n) return request;
    return refuseUnknown(request, `${this.path} keeps no answers`);
  }

  #run(call: IncomingCall, session: Session, input: Validation<unknown>): void {
    if (input.issues !== undefined) {
      const message = formatIssues("input", input.issues);
      call.settle({ error: new RpcError({ code: "invalid_argument", message, origin: "remote" }) });
      return call.place?.leave();
    }
    // Validation may have taken its time: do not start what nobody waits for.
    if (!call.open) return call.place?.leave();
    call.begin();
    try {
      const result = serveInside(call, this.#handler, input.value, new HandlerCall(call, session, this.path));
      if (isPromiseLike(result)) {
        result.then(
          (value) => this.#onHandlerReturned(call, session, value),
          (error: unknown) => this.#onHandlerThrew(call, session, error),
        );
      } else this.#onHandlerReturned(call, session, result);
    } catch (error) {
      this.#onHandlerThrew(call, session, error);
    }
  }

  /** The answer goes before the next handler begins. */
  #onHandlerReturned(call: IncomingCall, session: Session, value: unknown): void {
    this.#onReturned(call, session, value);
    call.place?.leave();
  }

  #onHandlerThrew(call: IncomingCall, session: Session, error: unknown): void {
    this.#onThrown(call, session, error);
    call.place?.leave();
  }

  #onReturned(call: IncomingCall, session: Session, value: unknown): void {
    if (!call.open) return this.#onLate(call, session);
    try {
      const checked = validate(this.#method.output, value);
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

  #answer(call: IncomingCall, session: Session, output: Validation<unknown>): void {
    if (output.issues !== undefined) {
      this.#onThrown(call, session, new TypeError(formatIssues("output", output.issues)));
    } else call.settle({ value: output.value });
  }

  #onThrown(call: IncomingCall, session: Session, error: unknown): void {
    if (!call.open) {
      // Handlers commonly end with the very reason their signal fired with.
      return this.#onLate(call, session);
    }
    if (error instanceof DeclaredFailure) return this.#onDeclared(call, session, error);
    if (error instanceof RpcError) return this.#onRpcError(call, error);
    this.#report(call, error);
    call.settle({
      error: new RpcError({ code: "internal", message: "the handler failed", origin: "remote" }),
    });
  }

  /**
   * An RpcError that a handler throws keeps its code. A reason and its data speak of a contract, and often of another's: an error that a nested
   * call failed with. They go along only where this method declares the reason and the data fit.
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

  #onDeclared(call: IncomingCall, session: Session, failure: DeclaredFailure): void {
    const schema: Schema | undefined = this.#method.errors[failure.reason];
    if (schema === undefined) {
      return this.#onThrown(
        call,
        session,
        new TypeError(`${this.path} declares no error "${failure.reason}"`),
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

  #onLate(call: IncomingCall, session: Session): void {
    session.host.counters.lateResults++;
    if (channels.lateResult.hasSubscribers)
      channels.lateResult.publish({ method: this.path, callId: call.id });
  }

  #report(call: IncomingCall, error: unknown): void {
    const where = { method: this.path, callId: call.id };
    if (channels.handlerFailed.hasSubscribers) channels.handlerFailed.publish({ ...where, error });
    try {
      this.#onHandlerError(error, where);
    } catch {
      // A listener's own failure must not become the caller's.
    }
  }
}

const undeclared: Validation<unknown> = { issues: [] };

/** The error as it travels, with the reason and the data it may have. */
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
