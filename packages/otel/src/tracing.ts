import { subscribe } from "node:diagnostics_channel";
import {
  type Attributes,
  type Context,
  context,
  type ProxyTracerProvider,
  propagation,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  type TextMapGetter,
  type TextMapSetter,
  type Tracer,
  type TracerProvider,
  trace,
} from "@opentelemetry/api";
import { anything, boolean, type FieldsOf, resolveOptions } from "cinnabar/options";
import type { Metadata, Middleware, MiddlewareCall, RpcCode } from "cinnabar/standard";
import { addressOf } from "./address.ts";
import { attribute, codeOf, isError, own, statusWord, systemName } from "./conventions.ts";
import { isIterable, TracedItems } from "./traced-items.ts";

/** The options of `tracing`. */
export interface TracingOptions {
  /** Makes the tracer. Default: the provider that is registered globally when a call is made. */
  readonly tracerProvider?: TracerProvider | undefined;
  /** Whether each `get` and `put` of a handler is a span of its own, of kind INTERNAL. Default false. */
  readonly transferSpans?: boolean | undefined;
}

const fields = {
  tracerProvider: anything<TracerProvider>(),
  transferSpans: boolean(false),
} satisfies FieldsOf<TracingOptions>;

/**
 * Middleware that makes a span for each call, for both sides of an engine. Spans and attributes are those of
 * OpenTelemetry's conventions for RPC. The context travels in the metadata of the call, in the form of the propagator
 * that is registered globally, such as `traceparent`.
 *
 * The span of a call covers its retries; that of a stream covers its whole life. With a context manager, as the SDK
 * registers one, handlers run with their span as the active one. The span records retries and transfers.
 *
 * @example
 * const traced = [tracing()];
 * await using engine = await Engine.open({ middleware: { client: traced, server: traced } });
 *
 * @throws TypeError for bad options.
 */
export function tracing(options: TracingOptions = {}): Middleware {
  const { tracerProvider, transferSpans } = resolveOptions("tracing", options, fields);
  const tracers = new Tracers(tracerProvider);
  listen();
  return (call, next) => {
    const tracer = tracers.current();
    const isClient = call.side === "client";
    const parent = isClient ? callersContext(call.metadata) : servedContext(call.metadata);
    const span = tracer.startSpan(
      call.method,
      {
        kind: isClient ? SpanKind.CLIENT : SpanKind.SERVER,
        attributes: {
          [attribute.system]: systemName,
          [attribute.method]: call.method,
          ...(isClient ? addressOf(call.peer) : undefined),
        },
      },
      parent,
    );
    const inside = trace.setSpan(parent, span);
    // A handler's calls belong to its span, with a context manager and without.
    const carrier = isClient ? call.metadata : call.nestedMetadata;
    if (carrier !== undefined) inject(inside, carrier);
    if (!span.isRecording()) return context.with(inside, next);
    return new CallTrace(call, span, inside, transferSpans ? tracer : undefined).run(next);
  };
}

/** Where spans come from: the given provider, or the one that is registered globally when a call is made. */
class Tracers {
  readonly #given: Tracer | undefined;
  #provider: TracerProvider | undefined;
  #tracer: Tracer | undefined;

  constructor(provider: TracerProvider | undefined) {
    this.#given = provider?.getTracer(tracerName);
  }

  /** A provider may come after `tracing`, and from another copy of the API, which shares the global one alone. */
  current(): Tracer {
    if (this.#given !== undefined) return this.#given;
    const provider = trace.getTracerProvider();
    if (provider !== this.#provider || this.#tracer === undefined) {
      this.#provider = provider;
      this.#tracer = provider.getTracer(tracerName);
    }
    if (!hasWarned && lacksProvider(provider)) {
      hasWarned = true;
      process.emitWarning(
        "cinnabar-otel: a call has no span, since no tracer provider is registered: call register() of the provider first, or pass tracing({ tracerProvider })",
        "CinnabarWarning",
      );
    }
    return this.#tracer;
  }
}

const tracerName = "cinnabar-otel";
/** Once in a process. */
let hasWarned = false;

/** Whether this is the API's placeholder for a provider that may be registered later. */
function lacksProvider(provider: TracerProvider): boolean {
  const { getDelegateTracer } = provider as Partial<ProxyTracerProvider>;
  return getDelegateTracer !== undefined && getDelegateTracer.call(provider, tracerName) === undefined;
}

/**
 * The context of a call that is made: that of the active span or, without one, that of the call that is being served.
 */
function callersContext(metadata: Metadata): Context {
  const active = context.active();
  return trace.getSpan(active) === undefined ? propagation.extract(active, metadata, getter) : active;
}

function servedContext(metadata: Metadata): Context {
  return metadata.size === 0 ? ROOT_CONTEXT : propagation.extract(ROOT_CONTEXT, metadata, getter);
}

const getter: TextMapGetter<Metadata> = {
  keys: (metadata) => [...metadata.keys()],
  get: (metadata, name) => metadata.get(name.toLowerCase()),
};

const setter: TextMapSetter<Metadata> = {
  set: (metadata, name, value) => void metadata.set(name.toLowerCase(), value),
};

function inject(from: Context, metadata: Metadata): void {
  // An inherited state belongs to another span. A propagator does not remove it if its own span has no state.
  const isStale = metadata.has("tracestate") && trace.getSpanContext(from)?.traceState === undefined;
  if (isStale && propagation.fields().includes("tracestate")) metadata.delete("tracestate");
  propagation.inject(from, metadata, setter);
}

/** Not `createContextKey`, whose keys all copies of this package share: each would count the transfers of the others. */
const traceKey = Symbol("cinnabar-otel call");

/** The span of one call, from its begin to its end. */
class CallTrace {
  readonly #call: MiddlewareCall;
  readonly #span: Span;
  readonly #context: Context;
  /** Makes the spans of transfers. Undefined: transfers have no spans. */
  readonly #tracer: Tracer | undefined;
  #attempts = 1;
  #transfers = 0;
  #bytesGot = 0;
  #bytesPut = 0;
  #hasEnded = false;

  constructor(call: MiddlewareCall, span: Span, inside: Context, tracer: Tracer | undefined) {
    this.#call = call;
    this.#span = span;
    this.#context = inside.setValue(traceKey, this);
    this.#tracer = tracer;
  }

  async run(next: () => Promise<unknown>): Promise<unknown> {
    try {
      const output = await context.with(this.#context, next);
      if (this.#givesItems && isIterable(output))
        return new TracedItems(output, this.#context, (error) => this.#endItems(error));
      this.#end(this.#abortCode() ?? "ok");
      return output;
    } catch (error) {
      this.#fail(error);
      throw error;
    }
  }

  get #givesItems(): boolean {
    const { kind } = this.#call;
    return kind === "serverStream" || kind === "duplexStream";
  }

  /** How a call that is served ended against the will of its handler. */
  #abortCode(): RpcCode | undefined {
    const { side, signal } = this.#call;
    return side === "server" && signal.aborted ? codeOf(signal.reason) : undefined;
  }

  /** `error`: the error that ended the items; null when their reader stops early. */
  #endItems(error: unknown): void {
    if (error === undefined) this.#end(this.#abortCode() ?? "ok");
    else if (error === null) this.#end(this.#abortCode() ?? "cancelled");
    else this.#fail(error);
  }

  #fail(error: unknown): void {
    const { attempts } = error as { attempts?: unknown };
    if (typeof attempts === "number") this.#attempts = attempts;
    this.#end(this.#abortCode() ?? codeOf(error), error instanceof Error ? error.message : String(error));
  }

  #end(code: RpcCode | "ok", message?: string): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    const span = this.#span;
    span.setAttribute(attribute.statusCode, statusWord(code));
    if (this.#attempts > 1) span.setAttribute(own.attempts, this.#attempts);
    if (this.#transfers > 0)
      span.setAttributes({
        [own.transfers]: this.#transfers,
        [own.bytesGot]: this.#bytesGot,
        [own.bytesPut]: this.#bytesPut,
      });
    if (isError(this.#call.side === "client" ? "out" : "in", code)) setError(span, code, message);
    span.end();
  }

  onAttempt({ attempt }: AttemptEvent): void {
    this.#attempts = Math.max(this.#attempts, attempt + 1);
  }

  onTransfer({ op, bytes, tookMs, code }: TransferEvent): void {
    this.#transfers++;
    if (op === "get") this.#bytesGot += bytes;
    else this.#bytesPut += bytes;
    if (this.#tracer === undefined) return;
    const endMs = performance.timeOrigin + performance.now();
    const attributes: Attributes = { [own.operation]: op, [own.bytes]: bytes };
    const options = { kind: SpanKind.INTERNAL, startTime: endMs - tookMs, attributes };
    const span = this.#tracer.startSpan(`cinnabar.${op}`, options, this.#context);
    if (code !== "ok") setError(span, code);
    span.end(endMs);
  }
}

function setError(span: Span, code: RpcCode | "ok", message?: string): void {
  span.setAttribute(attribute.errorType, statusWord(code));
  span.setStatus({ code: SpanStatusCode.ERROR, ...(message === undefined ? {} : { message }) });
}

/** As published on `cinnabar:call.retry`. */
interface AttemptEvent {
  readonly attempt: number;
}

/** As published on `cinnabar:transfer`. */
interface TransferEvent {
  readonly op: "get" | "put";
  readonly bytes: number;
  readonly tookMs: number;
  readonly code: RpcCode | "ok";
}

let isListening = false;

/** Subscribes once for the process: the events are published in the async context of their call, which has its trace. */
function listen(): void {
  if (isListening) return;
  isListening = true;
  subscribe("cinnabar:call.retry", (event) => activeTrace()?.onAttempt(event as AttemptEvent));
  subscribe("cinnabar:transfer", (event) => activeTrace()?.onTransfer(event as TransferEvent));
}

function activeTrace(): CallTrace | undefined {
  return context.active().getValue(traceKey) as CallTrace | undefined;
}
