import type { RpcCode } from "../base/errors/code.ts";
import { RpcError, type RpcErrorOptions } from "../base/errors/rpc-error.ts";
import { Timed } from "../base/time/deadline-wheel.ts";
import { boundHere } from "../base/time/detached-context.ts";
import { ContextValues } from "../call/context-values.ts";
import { type Abortable, abortErrorFor, timeLeftIn, unwatchAbort, watchAbort } from "../call/made-call.ts";
import { type Middleware, type MiddlewareCall, runChain } from "../call/middleware.ts";
import type { MetadataListener } from "../call/outgoing-call.ts";
import type { AnyService } from "../contract/service.ts";
import { type Metadata, noMetadata } from "../wire/metadata/metadata.ts";
import type { CallOptions, StreamCallOptions } from "./call-options.ts";
import { type ClientMethod, MergedMetadata } from "./client-method.ts";
import type { ReadInputs } from "./item-queue.ts";
import type { StreamCall } from "./stream-call.ts";
import { Outputs, type UserStream } from "./user-stream.ts";

/** Makes the call itself: the `next()` of the last middleware. */
export type MakeCall = (input: unknown, options: AnyCallOptions) => Promise<unknown>;

/** Begins a stream for `next()`. `given`: the items of the caller, or the input if the caller sends no items. */
export type BeginStream = (given: unknown, options: StreamCallOptions) => StreamCall;

/** The options of a call of any kind that concern its middleware. */
export type AnyCallOptions = Pick<
  CallOptions,
  "timeoutMs" | "inherit" | "signal" | "metadata" | "onHeaders" | "onTrailers" | "context"
>;

/** The options of the inner call, which middleware makes. */
type InnerOptions = { -readonly [name in keyof AnyCallOptions]: AnyCallOptions[name] };

type AnyItems = AsyncIterator<unknown, unknown> & { cancel?(reason?: unknown): void };

/** The time that an inner call has to pass on an expired deadline. */
const graceMs = 20;
const done: IteratorReturnResult<undefined> = Object.freeze({ done: true, value: undefined });

/** The middleware of a call: its client's, then its own. Undefined without any. */
export function chainOf(
  ofClient: readonly Middleware[],
  options: { readonly middleware?: readonly Middleware[] | undefined } | undefined,
): readonly Middleware[] | undefined {
  if (options?.middleware !== undefined) return [...ofClient, ...options.middleware];
  return ofClient.length === 0 ? undefined : ofClient;
}

/** Makes a call without items through middleware. */
export function callThrough(
  chain: readonly Middleware[],
  contract: AnyService,
  method: ClientMethod,
  input: unknown,
  options: AnyCallOptions | undefined,
  make: MakeCall,
): Promise<unknown> {
  return new Surroundings(contract, method, input, undefined, options, false).run(chain, make);
}

/**
 * What surrounds `next()`: the deadline and the signals of the call, and its metadata. Middleware sees it as the call.
 * Middleware that waits too long ends with `deadline_exceeded`. The calls that it makes by `next()` share the remaining
 * time.
 */
export class Surroundings extends Timed implements MiddlewareCall, Abortable {
  readonly side = "client";
  readonly identity = undefined;
  readonly nestedMetadata = undefined;
  readonly contract: AnyService;
  readonly name: string;
  readonly method: string;
  readonly kind: string;
  readonly idempotent: boolean;
  readonly peer: string;
  readonly context: ContextValues;
  readonly metadata: Metadata;
  headers: Metadata = noMetadata;
  trailers: Metadata = noMetadata;
  input: unknown;
  readonly opening: unknown;
  readonly #method: ClientMethod;
  /** Whether `next()` resolves to items that are still to come. */
  readonly givesItems: boolean;
  readonly #options: AnyCallOptions | undefined;
  readonly #signal: AbortSignal | undefined;
  /** The signal of the served call that this call belongs to. */
  readonly #aroundSignal: AbortSignal | undefined;
  readonly #timeoutMs: number;
  /** The deadline, on the engine's clock. */
  readonly #endMs: number;
  /** The listeners of the caller, in its async context: middleware may make the inner call in another context. */
  #onHeaders: MetadataListener | undefined;
  #onTrailers: MetadataListener | undefined;
  #abort: AbortController | undefined;
  #isSettled = false;
  /** The number of open calls that its middleware has made by `next()`. */
  #underWay = 0;
  /** The deadline has passed, and the inner call is about to report where the time went. */
  #isLate = false;
  /** The promise of the last `next()`. */
  #made: Promise<unknown> | undefined;
  /** The error that ended the call before its middleware or its reader did. */
  #ended: RpcError | undefined;
  #reject: (error: unknown) => void = () => {};

  constructor(
    contract: AnyService,
    method: ClientMethod,
    input: unknown,
    opening: unknown,
    options: AnyCallOptions | undefined,
    givesItems: boolean,
  ) {
    super();
    const { source, name, path, contract: declared } = method;
    this.contract = contract;
    this.name = name;
    this.method = path;
    this.kind = declared.kind;
    this.idempotent = declared.idempotent;
    this.peer = source.name;
    this.input = input;
    this.opening = opening;
    this.context = options?.context ?? new ContextValues();
    this.#method = method;
    this.givesItems = givesItems;
    this.#options = options;
    this.#onHeaders = options?.onHeaders && boundHere(options.onHeaders);
    this.#onTrailers = options?.onTrailers && boundHere(options.onTrailers);
    const around = method.callAround(options);
    this.#signal = options?.signal;
    this.#aroundSignal = around?.signal;
    this.metadata = method.metadataFor(options, around) ?? new MergedMetadata();
    const nowMs = source.engine.clock.now();
    this.#timeoutMs = timeLeftIn(around, nowMs, options?.timeoutMs ?? method.timeoutMs);
    this.#endMs = nowMs + this.#timeoutMs;
  }

  get isConfidential(): boolean {
    return this.#method.source.isConfidential;
  }

  /** Made on first use. */
  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      if (this.#ended !== undefined) this.#abort.abort(this.#ended);
    }
    return this.#abort.signal;
  }

  get timeLeftMs(): number {
    return Math.max(0, this.#endMs - this.#method.source.engine.clock.now());
  }

  /** Runs the middleware. `make` makes the call itself, for the last `next()`. */
  run(chain: readonly Middleware[], make: MakeCall): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#reject = reject;
      this.#listen();
      if (this.#isSettled) return;
      const fail = (cause: unknown) => {
        if (this.#ended !== undefined) return;
        this.#settle();
        reject(this.reportTrailers() ?? this.errorFrom(cause));
      };
      const succeed = (value: unknown) => {
        if (this.#ended !== undefined) return;
        this.#settle();
        // The trailers of a stream come after its items.
        const error = this.givesItems ? undefined : this.reportTrailers();
        if (error === undefined) resolve(value);
        else reject(error);
      };
      runChain(chain, this, () => this.#next(make)).then((value) => {
        const isMissing = value === undefined && !this.givesItems && !this.#method.returnsNothing;
        if (isMissing) this.#explainNothing().then(succeed, fail);
        else succeed(value);
      }, fail);
    });
  }

  #next(make: MakeCall): Promise<unknown> {
    if (this.#isLate) this.onDeadline();
    if (this.#ended !== undefined) return Promise.reject(this.#ended);
    // The events that end this call also end the inner call: it has the same signals, and the remaining time.
    const left = this.timeLeftMs;
    this.headers = noMetadata;
    this.trailers = noMetadata;
    const options: InnerOptions = {
      ...this.#options,
      metadata: this.metadata,
      onHeaders: (headers) => {
        this.headers = headers;
        // Only the headers of the first `next()` that has any are reported.
        const report = this.#onHeaders;
        this.#onHeaders = undefined;
        report?.(headers);
      },
      onTrailers: (trailers) => {
        this.trailers = trailers;
      },
    };
    if (left < Number.POSITIVE_INFINITY) options.timeoutMs = Math.max(1, Math.ceil(left));
    const made = make(this.input, options);
    this.#made = made;
    this.#underWay++;
    made.then(this.#onMade, this.#onMade);
    return made;
  }

  readonly #onMade = (): void => void this.#underWay--;

  /** Middleware returned nothing for a method with an output: an error, unless the call itself gave nothing. */
  async #explainNothing(): Promise<undefined> {
    const made = this.#made;
    if (made === undefined)
      throw this.errorOf("internal", "middleware of the client neither called next() nor returned a value");
    const value = await made.catch(() => undefined);
    if (value === undefined) return undefined;
    throw this.errorOf("internal", "middleware of the client did not return what next() gives");
  }

  /** The call settles: gives the user the trailers, once. Returns the error of a listener that throws. */
  reportTrailers(): RpcError | undefined {
    const report = this.#onTrailers;
    if (this.trailers === noMetadata || report === undefined) return undefined;
    this.#onTrailers = undefined;
    try {
      report(this.trailers);
      return undefined;
    } catch (cause) {
      return this.errorOf("internal", "onTrailers threw", { cause });
    }
  }

  /** The error of the call for a value that middleware threw. */
  errorFrom(cause: unknown): RpcError {
    if (cause instanceof RpcError) return cause;
    return this.errorOf("internal", "middleware of the client threw", { cause });
  }

  errorOf(code: RpcCode, message: string, more: Partial<RpcErrorOptions> = {}): RpcError {
    return new RpcError({ ...more, code, message, method: this.method });
  }

  // ---- its limits -------------------------------------------------------------------------------------------------

  #listen(): void {
    if (this.#endMs < Number.POSITIVE_INFINITY) this.#method.source.engine.wheel.arm(this, this.#endMs);
    this.#watch(this.#signal);
    this.#watch(this.#aroundSignal);
  }

  #watch(signal: AbortSignal | undefined): void {
    if (signal === undefined || this.#isSettled) return;
    if (signal.aborted) this.onAbort(signal.reason);
    else watchAbort(signal, this);
  }

  /** An inner call under way has the same deadline, and knows its number and its phase: its error is better. */
  override onDeadline(): void {
    if (this.#underWay > 0 && !this.#isLate) {
      this.#isLate = true;
      const { wheel, clock } = this.#method.source.engine;
      return wheel.arm(this, clock.now() + graceMs);
    }
    const message = `${Math.round(this.#timeoutMs)} ms have passed in middleware of the client`;
    this.end(this.errorOf("deadline_exceeded", message));
  }

  onAbort(reason: unknown): void {
    const { code, message } = abortErrorFor(reason);
    this.end(this.errorOf(code, message, { cause: reason }));
  }

  /** Ends the call with `error`, in any state of its middleware. */
  end(error: RpcError): void {
    if (this.#ended !== undefined) return;
    this.#settle();
    // First, so that this error is the reason for everything that the signal ends.
    this.#reject(error);
    this.#ended = error;
    this.#abort?.abort(error);
  }

  #settle(): void {
    this.#isSettled = true;
    this.#method.source.engine.wheel.disarm(this);
    if (this.#signal !== undefined) unwatchAbort(this.#signal, this);
    if (this.#aroundSignal !== undefined) unwatchAbort(this.#aroundSignal, this);
  }
}

/**
 * A stream through the middleware of a client. Middleware is asynchronous, but the user has the stream at once. So the
 * user's stream waits for what the middleware returns: the answer, or the items.
 */
export class SurroundedStream implements UserStream {
  readonly #call: Surroundings;
  readonly #begin: BeginStream;
  /** The items that the user sends one by one. */
  readonly #inputs: ReadInputs | undefined;
  /** The open streams that `next()` has opened, and the newest stream. */
  #streams: StreamCall[] = [];
  readonly #output: Promise<unknown>;
  /** The user has read the end or an error, or has stopped reading. */
  #isOver = false;

  constructor(call: Surroundings, chain: readonly Middleware[], begin: BeginStream, inputs?: ReadInputs) {
    this.#call = call;
    this.#begin = begin;
    this.#inputs = inputs;
    if (inputs !== undefined) inputs.whyLeft = () => this.#streams.at(-1)?.failure;
    const output = call.run(chain, (given, options) => this.#make(given, options));
    this.#output = call.givesItems ? output.then((value) => iteratorOf(value, call.method)) : output;
    // The reader, or the caller of `answered`, receives the error.
    this.#output.then(
      () => {
        if (!call.givesItems) this.#close(undefined);
      },
      (error: RpcError) => this.#close(error),
    );
  }

  async #make(given: unknown, options: StreamCallOptions): Promise<unknown> {
    const stream = this.#begin(given, options);
    this.#streams = this.#streams.filter(({ settled }) => !settled);
    this.#streams.push(stream);
    if (!this.#call.givesItems) return stream.answered();
    await stream.begun();
    return new Outputs(stream);
  }

  answered(): Promise<unknown> {
    return this.#output.then((value) => value);
  }

  async next(): Promise<IteratorResult<unknown, undefined>> {
    if (this.#isOver) return done;
    let error: RpcError | undefined;
    try {
      const result = await ((await this.#output) as AnyItems).next();
      if (result.done !== true) return result;
    } catch (cause) {
      error = this.#call.errorFrom(cause);
    }
    // The first reader receives the error, unless the consumer ended the stream.
    if (this.#isOver) return done;
    this.#isOver = true;
    error = this.#call.reportTrailers() ?? error;
    this.#close(error);
    if (error !== undefined) throw error;
    return done;
  }

  async return(): Promise<IteratorResult<unknown, undefined>> {
    this.cancel();
    return done;
  }

  cancel(reason?: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const more = reason === undefined ? {} : { cause: reason };
    const error = this.#call.errorOf("cancelled", "the stream was cancelled", more);
    this.#call.end(error);
    this.#close(error, reason);
    if (!this.#call.givesItems) return;
    this.#output.then(
      (value) => {
        const items = value as AnyItems;
        if (items.cancel !== undefined) items.cancel(reason);
        else items.return?.()?.catch(() => {});
      },
      () => {},
    );
  }

  /**
   * The stream has ended for its user, with this error if there was one. Streams that middleware has left open end for
   * `reason`, and their readers are notified.
   */
  #close(error: RpcError | undefined, reason?: unknown): void {
    this.#inputs?.close(error);
    for (const stream of this.#streams.splice(0)) stream.abandon(reason);
  }
}

function iteratorOf(value: unknown, method: string): AnyItems {
  if (typeof value === "object" && value !== null) {
    const source = value as Partial<AsyncIterable<unknown> & Iterable<unknown>>;
    const items = source[Symbol.asyncIterator]?.() ?? source[Symbol.iterator]?.();
    if (items !== undefined) return items as AnyItems;
  }
  const message = "middleware of the client returned no items";
  throw new RpcError({ code: "internal", message, method });
}
