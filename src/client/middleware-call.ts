import type { RpcCode } from "../base/errors/code.ts";
import { RpcError, type RpcErrorOptions } from "../base/errors/rpc-error.ts";
import { boundHere } from "../base/time/detached-context.ts";
import { ContextValues } from "../call/context-values.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import { MadeCall, timeLeftIn } from "../call/made-call.ts";
import { type Middleware, type MiddlewareCall, runChain } from "../call/middleware.ts";
import type { MetadataListener } from "../call/outgoing-call.ts";
import type { AnyService } from "../contract/service.ts";
import { type Metadata, noMetadata } from "../wire/metadata/metadata.ts";
import type { CallOptions } from "./call-options.ts";
import { type ClientMethod, MergedMetadata } from "./client-method.ts";

/** Makes the call itself: the `next()` of the last middleware. */
export type MakeCall = (input: unknown, options: AnyCallOptions) => Promise<unknown>;

/** The options of a call of any kind that concern its middleware. */
export type AnyCallOptions = Pick<
  CallOptions,
  "timeoutMs" | "inherit" | "signal" | "metadata" | "onHeaders" | "onTrailers" | "context"
>;

/** The options of the inner call, which middleware makes. */
type InnerOptions = { -readonly [name in keyof AnyCallOptions]: AnyCallOptions[name] };

/** The time that middleware has to pass on an expired deadline. */
const graceMs = 20;

/** Makes a call without items through middleware. */
export function callThrough(
  chain: readonly Middleware[],
  contract: AnyService,
  method: ClientMethod,
  input: unknown,
  options: AnyCallOptions | undefined,
  make: MakeCall,
): Promise<unknown> {
  return new ClientMiddlewareCall(contract, method, input, options).run(chain, make);
}

/**
 * A call inside the client's middleware. Its deadline covers all of it: middleware that waits too long ends with
 * `deadline_exceeded`. Calls that the middleware makes again share the remaining time.
 */
export class ClientMiddlewareCall extends MadeCall implements MiddlewareCall {
  readonly side = "client";
  readonly nestedMetadata = undefined;
  readonly contract: AnyService;
  readonly metadata: Metadata;
  readonly context: ContextValues;
  headers: Metadata = noMetadata;
  trailers: Metadata = noMetadata;
  input: unknown;
  readonly opening: unknown;
  readonly #method: ClientMethod;
  readonly #options: AnyCallOptions | undefined;
  readonly #around: IncomingCall | undefined;
  readonly #timeoutMs: number;
  /** The listeners of the caller, in its async context: middleware may make the inner call in another context. */
  readonly #onHeaders: MetadataListener | undefined;
  readonly #onTrailers: MetadataListener | undefined;
  #abort: AbortController | undefined;
  #isSettled = false;
  /** The deadline, on the engine's clock. */
  #endMs = Number.POSITIVE_INFINITY;
  /** The number of open calls that its middleware has made by `next()`. */
  #underWay = 0;
  /** The deadline has passed, and the inner call is about to report where the time went. */
  #isLate = false;
  /** The promise of the last `next()`. */
  #made: Promise<unknown> | undefined;
  /** The error that ended the call before its middleware or its reader did. */
  #ended: RpcError | undefined;
  #hasReportedHeaders = false;
  #hasReportedTrailers = false;
  #reject: (error: unknown) => void = () => {};

  constructor(
    contract: AnyService,
    method: ClientMethod,
    input: unknown,
    options: AnyCallOptions | undefined,
    opening?: unknown,
  ) {
    super();
    this.opening = opening;
    this.contract = contract;
    this.input = input;
    this.context = options?.context ?? new ContextValues();
    this.#method = method;
    this.#options = options;
    this.#onHeaders = options?.onHeaders && boundHere(options.onHeaders);
    this.#onTrailers = options?.onTrailers && boundHere(options.onTrailers);
    const around = method.callAround(options);
    this.#around = around;
    this.metadata = method.metadataFor(options, around) ?? new MergedMetadata();
    const nowMs = method.source.engine.clock.now();
    this.#timeoutMs = timeLeftIn(around, nowMs, options?.timeoutMs ?? method.timeoutMs);
  }

  /** Whether `next()` resolves to items that are still to come. */
  protected get givesItems(): boolean {
    return false;
  }

  /** The user has received the whole result of the call. */
  protected finish(): void {}

  get identity(): undefined {
    return undefined;
  }

  get isConfidential(): boolean {
    return this.#method.source.isConfidential;
  }

  get name(): string {
    return this.#method.name;
  }

  get method(): string {
    return this.#method.path;
  }

  get kind(): string {
    return this.#method.kind;
  }

  get idempotent(): boolean {
    return this.#method.idempotent;
  }

  get peer(): string {
    return this.#method.source.name;
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
    if (this.#timeoutMs === Number.POSITIVE_INFINITY) return this.#timeoutMs;
    return Math.max(0, this.#endMs - this.#method.source.engine.clock.now());
  }

  override get settled(): boolean {
    return this.#isSettled;
  }

  /** The list shows the calls that it makes. */
  override get isListed(): boolean {
    return false;
  }

  /** Runs the middleware. `make` makes the call itself, for the last `next()`. */
  run(chain: readonly Middleware[], make: MakeCall): Promise<unknown> {
    const { engine } = this.#method.source;
    if (this.#timeoutMs < Number.POSITIVE_INFINITY) {
      this.#endMs = engine.clock.now() + this.#timeoutMs;
      engine.wheel.arm(this, this.#endMs);
    }
    return new Promise((resolve, reject) => {
      this.#reject = reject;
      this.listen(this.#options?.signal);
      this.listen(this.#around?.signal);
      if (this.settled) return;
      const fail = (cause: unknown) => {
        if (this.#ended !== undefined) return;
        this.#settle();
        reject(this.reportTrailers() ?? this.errorFrom(cause));
        this.finish();
      };
      const succeed = (value: unknown) => {
        if (this.#ended !== undefined) return;
        this.#settle();
        // The trailers of a stream come after its items.
        if (this.givesItems) return resolve(value);
        const error = this.reportTrailers();
        if (error === undefined) resolve(value);
        else reject(error);
        this.finish();
      };
      runChain(chain, this, () => this.#next(make)).then((value) => {
        const isMissing = value === undefined && !this.givesItems && !this.#method.returnsNothing;
        if (isMissing) this.#explainNothing().then(succeed, fail);
        else succeed(value);
      }, fail);
    });
  }

  /** The call settles: gives the user the metadata of the answer. Returns the error of a listener that throws. */
  reportTrailers(): RpcError | undefined {
    const { trailers } = this;
    if (trailers === noMetadata || this.#hasReportedTrailers) return undefined;
    this.#hasReportedTrailers = true;
    try {
      this.#onTrailers?.(trailers);
      return undefined;
    } catch (cause) {
      return this.errorOf("internal", "onTrailers threw", { cause });
    }
  }

  /** Middleware returned nothing for a method with an output: an error, unless the call itself gave nothing. */
  async #explainNothing(): Promise<undefined> {
    const made = this.#made;
    if (made === undefined)
      throw this.errorOf("internal", "middleware of the client neither called next() nor returned a value");
    const value = await made.catch(() => undefined);
    if (value === undefined) return undefined;
    throw this.errorOf("internal", "middleware of the client did not return what next() gives");
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
        if (this.#hasReportedHeaders) return;
        this.#hasReportedHeaders = true;
        this.#onHeaders?.(headers);
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

  /** The error of the call for a value that middleware threw. */
  protected errorFrom(cause: unknown): RpcError {
    if (cause instanceof RpcError) return cause;
    return this.errorOf("internal", "middleware of the client threw", { cause });
  }

  protected errorOf(code: RpcCode, message: string, more: Partial<RpcErrorOptions> = {}): RpcError {
    return new RpcError({ ...more, code, message, method: this.#method.path });
  }

  /** An inner call under way has the same deadline, and knows its number and its phase: its error is better. */
  override onDeadline(): void {
    if (this.#underWay > 0 && !this.#isLate) {
      this.#isLate = true;
      const { wheel, clock } = this.#method.source.engine;
      return wheel.arm(this, clock.now() + graceMs);
    }
    this.endEarly(
      "deadline_exceeded",
      `${Math.round(this.#timeoutMs)} ms have passed in middleware of the client`,
    );
  }

  protected override endEarly(code: RpcCode, message: string, more?: Partial<RpcErrorOptions>): void {
    this.end(this.errorOf(code, message, more));
  }

  /** Ends the call with `error`, in any state of its middleware. */
  protected end(error: RpcError): void {
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
    this.unlisten();
  }
}
