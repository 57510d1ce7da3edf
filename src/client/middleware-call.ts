import { RpcError } from "../base/errors/rpc-error.ts";
import { Timed } from "../base/time/deadline-wheel.ts";
import {
  type Abortable,
  isTimeout,
  timeLeftIn,
  timeUp,
  unwatchAbort,
  watchAbort,
} from "../call/abort-watch.ts";
import { ContextValues } from "../call/context-values.ts";
import { currentCall } from "../call/current-call.ts";
import { type Middleware, type MiddlewareCall, runChain } from "../call/middleware.ts";
import type { AnyService } from "../contract/service.ts";
import { type Metadata, noMetadata } from "../wire/metadata/metadata.ts";
import type { CallOptions } from "./call-options.ts";
import { type ClientMethod, MergedMetadata } from "./client-method.ts";

/** Makes the call itself: what `next()` of the last middleware does. */
export type MakeCall = (input: unknown, options: AnyCallOptions) => Promise<unknown>;

/** The options of a call of any kind that concern its middleware. */
export type AnyCallOptions = Pick<
  CallOptions,
  "timeoutMs" | "inherit" | "signal" | "metadata" | "onMetadata" | "context"
>;

/**
 * Makes a call through middleware. Its deadline covers all of it: middleware that waits too long ends with
 * `deadline_exceeded`, and calls that it makes again share the time that is left.
 */
export function callThrough(
  chain: readonly Middleware[],
  contract: AnyService,
  method: ClientMethod,
  input: unknown,
  options: AnyCallOptions | undefined,
  make: MakeCall,
): Promise<unknown> {
  const call = new ClientMiddlewareCall(contract, method, input, options, make);
  return call.run(chain);
}

/** A stream that `next()` has opened. */
export interface InnerStream {
  readonly settled: boolean;
  /** What it has failed with. */
  readonly failure: RpcError | undefined;
  /** Nobody wants it any more. Whoever still reads it hears of that. */
  abandon(reason: unknown): void;
}

/** A call as middleware of the client has it. */
export class ClientMiddlewareCall extends Timed implements MiddlewareCall, Abortable {
  readonly side = "client";
  readonly nestedMetadata = undefined;
  readonly contract: AnyService;
  readonly metadata: Metadata;
  readonly context: ContextValues;
  responseMetadata: Metadata = noMetadata;
  input: unknown;
  readonly opening: unknown;
  readonly #method: ClientMethod;
  readonly #options: AnyCallOptions | undefined;
  readonly #make: MakeCall;
  #abort: AbortController | undefined;
  #ended: RpcError | undefined;
  readonly #watched: AbortSignal[] = [];
  readonly #timeoutMs: number;
  /** Those that are open, and the newest. */
  #streams: InnerStream[] = [];
  #hasTold = false;
  #reject: (error: unknown) => void = () => {};

  constructor(
    contract: AnyService,
    method: ClientMethod,
    input: unknown,
    options: AnyCallOptions | undefined,
    make: MakeCall,
    opening?: unknown,
  ) {
    super();
    this.opening = opening;
    this.contract = contract;
    this.input = input;
    this.context = options?.context ?? new ContextValues();
    this.#method = method;
    this.#options = options;
    this.#make = make;
    const nowMs = method.source.engine.clock.now();
    const timeoutMs = options?.timeoutMs ?? (method.isStream ? method.streamTimeoutMs : method.timeoutMs);
    const around = (options?.inherit ?? method.inherit) ? currentCall() : undefined;
    this.metadata = method.metadataFor(options, around) ?? new MergedMetadata();
    this.#timeoutMs = around === undefined ? timeoutMs : timeLeftIn(around, nowMs, timeoutMs);
    for (const signal of [options?.signal, around?.signal])
      if (signal !== undefined) this.#watched.push(signal);
  }

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

  /** Made when first asked for. */
  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      if (this.#ended !== undefined) this.#abort.abort(this.#ended);
    }
    return this.#abort.signal;
  }

  get timeLeftMs(): number {
    if (this.#timeoutMs === Number.POSITIVE_INFINITY) return this.#timeoutMs;
    return Math.max(0, this.deadlineMs - this.#method.source.engine.clock.now());
  }

  run(chain: readonly Middleware[]): Promise<unknown> {
    const { engine } = this.#method.source;
    if (this.#timeoutMs < Number.POSITIVE_INFINITY)
      engine.wheel.arm(this, engine.clock.now() + this.#timeoutMs);
    return new Promise((resolve, reject) => {
      this.#reject = reject;
      for (const signal of this.#watched) {
        if (signal.aborted) return this.onAbort(signal.reason);
        watchAbort(signal, this);
      }
      runChain(chain, this, () => this.#next()).then(
        (value) => {
          if (this.#ended !== undefined) return;
          this.#settle();
          // The items of a stream come yet, and its metadata behind them.
          const error = this.#givesItems ? undefined : this.tellMetadata();
          if (error === undefined) resolve(value);
          else reject(error);
          if (!this.#givesItems) this.finish();
        },
        (cause: unknown) => {
          if (this.#ended !== undefined) return;
          this.#settle();
          const error = cause instanceof RpcError ? cause : this.threw(cause);
          reject(this.tellMetadata() ?? error);
          this.finish();
        },
      );
    });
  }

  /** What `next()` resolves to are items that are still to come. */
  get #givesItems(): boolean {
    return this.kind === "serverStream" || this.kind === "duplexStream";
  }

  /** A stream that `next()` has opened: it ends with this call at the latest. */
  keep(stream: InnerStream): void {
    this.#streams = this.#streams.filter(({ settled }) => !settled);
    this.#streams.push(stream);
  }

  /** What the newest stream has failed with. */
  get streamFailure(): RpcError | undefined {
    return this.#streams.at(-1)?.failure;
  }

  /** The user has all that the call gives: streams that middleware has left open end. */
  finish(reason?: unknown): void {
    for (const stream of this.#streams.splice(0)) stream.abandon(reason);
  }

  /** The call settles: gives the user what came with the answer. Returns what ends the call if the listener throws. */
  tellMetadata(): RpcError | undefined {
    const { responseMetadata } = this;
    if (responseMetadata === noMetadata || this.#hasTold) return undefined;
    this.#hasTold = true;
    try {
      this.#options?.onMetadata?.(responseMetadata);
      return undefined;
    } catch (cause) {
      const method = this.#method.path;
      return new RpcError({ code: "internal", message: "onMetadata threw", cause, method });
    }
  }

  #next(): Promise<unknown> {
    if (this.#ended !== undefined) return Promise.reject(this.#ended);
    // What ends this call ends the inner one too: it has the same signals, and the time that is left.
    const left = this.timeLeftMs;
    this.responseMetadata = noMetadata;
    return this.#make(this.input, {
      ...this.#options,
      ...(left === Number.POSITIVE_INFINITY ? {} : { timeoutMs: Math.max(1, Math.ceil(left)) }),
      metadata: this.metadata,
      onMetadata: (metadata) => {
        this.responseMetadata = metadata;
      },
    });
  }

  threw(cause: unknown): RpcError {
    const method = this.#method.path;
    return new RpcError({ code: "internal", message: "middleware of the client threw", cause, method });
  }

  override onDeadline(): void {
    const message = `${Math.round(this.#timeoutMs)} ms have passed in middleware of the client`;
    this.#end(new RpcError({ code: "deadline_exceeded", message, method: this.#method.path }));
  }

  onAbort(cause: unknown): void {
    const method = this.#method.path;
    this.#end(
      isTimeout(cause)
        ? new RpcError({ code: "deadline_exceeded", message: timeUp(cause), method, cause })
        : new RpcError({ code: "cancelled", message: "the caller gave up", method, cause }),
    );
  }

  /** The user wants no more of a stream. Returns what ends it. */
  cancel(reason?: unknown): RpcError {
    const method = this.#method.path;
    const cause = reason === undefined ? {} : { cause: reason };
    const error = new RpcError({ code: "cancelled", message: "the stream was cancelled", method, ...cause });
    this.#end(error);
    this.finish(reason);
    return error;
  }

  #end(error: RpcError): void {
    if (this.#ended !== undefined) return;
    this.#settle();
    // First, so that this error is the reason of whatever the signal ends.
    this.#reject(error);
    this.#ended = error;
    this.#abort?.abort(error);
  }

  #settle(): void {
    this.#method.source.engine.wheel.disarm(this);
    for (const signal of this.#watched) unwatchAbort(signal, this);
  }
}
