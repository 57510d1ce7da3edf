import { currentCall } from "../call/current-call.ts";
import type { AnyService } from "../contract/service.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { type Metadata, noMetadata } from "../metadata/metadata.ts";
import { ContextValues } from "../middleware/context-values.ts";
import { type Middleware, type MiddlewareCall, runChain } from "../middleware/middleware.ts";
import { Timed } from "../time/deadline-wheel.ts";
import { type Abortable, isTimeout, timeLeftIn, timeUp, unwatchAbort, watchAbort } from "./abort-watch.ts";
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

/** A call as middleware of the client has it. */
export class ClientMiddlewareCall extends Timed implements MiddlewareCall, Abortable {
  readonly side = "client";
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
          this.#settle();
          resolve(value);
        },
        (error: unknown) => {
          this.#settle();
          reject(error instanceof RpcError ? error : this.#threw(error));
        },
      );
    });
  }

  #next(): Promise<unknown> {
    if (this.#ended !== undefined) return Promise.reject(this.#ended);
    // What ends this call ends the inner one too: it has the same signals, and the time that is left.
    const left = this.timeLeftMs;
    return this.#make(this.input, {
      ...this.#options,
      ...(left === Number.POSITIVE_INFINITY ? {} : { timeoutMs: Math.max(1, Math.ceil(left)) }),
      metadata: this.metadata,
      onMetadata: (metadata) => {
        this.responseMetadata = metadata;
        this.#options?.onMetadata?.(metadata);
      },
    });
  }

  #threw(cause: unknown): RpcError {
    const method = this.#method.path;
    return new RpcError({ code: "internal", message: "middleware of the client threw", cause, method });
  }

  override onDeadline(): void {
    const message = `${this.#timeoutMs} ms have passed in middleware of the client`;
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

  /** The consumer of a stream wants no more of it. */
  cancel(cause?: unknown): void {
    this.onAbort(cause);
  }

  #end(error: RpcError): void {
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
