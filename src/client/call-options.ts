import { type Priority, priorities } from "../base/flow/priority.ts";
import {
  boolean,
  callback,
  checkedBy,
  checkOptions,
  type FieldsOf,
  fail,
  instance,
  milliseconds,
  oneOf,
  text,
} from "../base/options/options.ts";
import { ContextValues } from "../call/context-values.ts";
import { type Middleware, middlewareField } from "../call/middleware.ts";
import { idleTimeoutField, type StreamWindowOptions, windowField } from "../contract/method.ts";
import { instanceField } from "../contract/service.ts";
import { entryFault } from "../wire/metadata/entry.ts";
import { entriesOf, Metadata, type MetadataInit } from "../wire/metadata/metadata.ts";
import { repeatedBlock } from "../wire/metadata/repeated-object.ts";
import {
  attemptFields,
  type ClientRetryOptions,
  clientAttemptFields,
  type RetryOptions,
} from "./retry-policy.ts";

/**
 * The options of `peer.client`. They apply to every call of the client that does not set its own.
 *
 * @example
 * const client = peer.client(Files, {
 *   timeoutMs: 2_000,
 *   retry: { attempts: 4, baseDelayMs: 20, budget: { ratio: 0.1 } },
 * });
 * await client.stat({ path }, { retry: false, signal }); // this call is not retried
 */
export interface ClientOptions {
  /**
   * The deadline of a call, in milliseconds: connecting, waiting, retries and the answer. Default: the method's, or
   * 10,000. A call cannot wait forever. Streams have none unless their method or their own options set one.
   */
  readonly timeoutMs?: number | undefined;
  /** The time limit of one attempt, in milliseconds, with connecting. Default: the time left of the call. */
  readonly attemptTimeoutMs?: number | undefined;
  /**
   * Retries a failed call if that is safe: the method is `idempotent`, it has `replay`, or certainly no handler
   * started. Default: no retries.
   */
  readonly retry?: ClientRetryOptions | false | undefined;
  /**
   * Whether a call that a handler makes inherits the deadline and the cancellation of the call that the handler
   * serves. Set false for work that must continue. Default true.
   */
  readonly inherit?: boolean | undefined;
  /**
   * What a call does when the window of its session is full. `wait`: it waits for its turn until its deadline. `fail`: it
   * fails at once with `resource_exhausted`. Default "wait".
   */
  readonly whenFull?: "wait" | "fail" | undefined;
  /** The priority of the calls, in queues here and at the server. Default: the method's, or "normal". */
  readonly priority?: Priority | undefined;
  /**
   * The implementation of the service to call, as named by the server's `implement(service, handlers, { instance })`.
   * Calls fail with `unimplemented` when the server has no such instance. Default: the implementation without a name.
   */
  readonly instance?: string | undefined;
  /**
   * The key of every call for the policy of a balanced peer, such as `consistentHash`. A peer with one URL ignores it.
   * Default: what the option `keyOf` of the balanced peer returns.
   */
  readonly key?: string | undefined;
  /** Metadata of every call. A call's own entries replace those of the same name. Default: none. */
  readonly metadata?: MetadataInit | undefined;
  /** Middleware of this client. It runs inside that of the engine. Default: none. */
  readonly middleware?: readonly Middleware[] | undefined;
}

/** The options of one call. */
export interface CallOptions {
  /** The deadline of this call, in milliseconds. Default: the client's. */
  readonly timeoutMs?: number | undefined;
  /** The time limit of one attempt, in milliseconds. Default: the client's. */
  readonly attemptTimeoutMs?: number | undefined;
  /** Retries of this call. Fields that are left out are the client's. The budget is always the client's. */
  readonly retry?: RetryOptions | false | undefined;
  /** Whether this call inherits deadline and cancellation from the call being served. Default: the client's. */
  readonly inherit?: boolean | undefined;
  /** What this call does when the window of its session is full. Default: the client's. */
  readonly whenFull?: "wait" | "fail" | undefined;
  /** The priority of this call. Default: the client's, or the method's. */
  readonly priority?: Priority | undefined;
  /** Metadata of this call, beside the client's. */
  readonly metadata?: MetadataInit | undefined;
  /**
   * Receives the headers that the server sent before its answer or its first item, once and as soon as they come. Not
   * called without headers. The attempt that sent them decides: no other attempt follows, unless the method has
   * `replay`. An error that it throws ends the call with `internal`.
   */
  readonly onHeaders?: ((headers: Metadata) => void) | undefined;
  /**
   * Receives the trailers of the answer, the error or the end of the stream, once, just before the call settles. The
   * trailers come from the deciding attempt. Not called without trailers. An error that it throws ends the call with
   * `internal`.
   */
  readonly onTrailers?: ((trailers: Metadata) => void) | undefined;
  /** Middleware of this call. It runs inside that of the client. */
  readonly middleware?: readonly Middleware[] | undefined;
  /** Values for middleware. Default: none. */
  readonly context?: ContextValues | undefined;
  /**
   * Cancels the call or the stream in any phase. It fails with `cancelled`, or with `deadline_exceeded` for
   * `AbortSignal.timeout`. The signal's reason is the `cause` of the error.
   */
  readonly signal?: AbortSignal | undefined;
}

/**
 * The options of one stream. `retry` applies until the first item, in either direction; `attemptTimeoutMs` does not
 * exist for streams.
 */
export interface StreamCallOptions extends Omit<CallOptions, "timeoutMs" | "attemptTimeoutMs" | "retry"> {
  /** The time limit of the whole stream, in milliseconds. Default: the method's, or none. */
  readonly timeoutMs?: number | undefined;
  /**
   * How long this side waits for the other, in milliseconds; `false`: as long as the other lives. Default: the method's,
   * which has 60,000.
   */
  readonly idleTimeoutMs?: number | false | undefined;
  /** Items and bytes of the server that may be on their way or wait here. Default: the method's. */
  readonly window?: StreamWindowOptions | undefined;
  /** Retries before the first item. Fields that are left out are the client's. */
  readonly retry?: RetryOptions | false | undefined;
}

/** The options of each kind of call. */
export interface ClientCallOptions {
  readonly call: CallOptions;
  readonly stream: StreamCallOptions;
  /** A one-way call makes one attempt: after it has left, its caller does not know whether it was executed. */
  readonly oneWay: Pick<
    CallOptions,
    "timeoutMs" | "inherit" | "whenFull" | "priority" | "metadata" | "middleware" | "context" | "signal"
  >;
}

export type OneWayCallOptions = ClientCallOptions["oneWay"];

export const defaultTimeoutMs = 10_000;

const metadataField = checkedBy((where, name, value): MetadataInit => {
  if (typeof value !== "object" || value === null)
    return fail(TypeError, where, name, "an object, a Metadata, a Map or Headers", value);
  const metadata = value as MetadataInit;
  if (metadata instanceof Metadata || repeatedBlock(metadata) !== undefined) return metadata;
  if (Symbol.iterator in metadata && !("has" in metadata))
    return fail(TypeError, where, name, "an object, a Metadata, a Map or Headers", value);
  for (const [entry, text] of entriesOf(metadata)) {
    const fault = entryFault(entry, text);
    if (fault !== "") throw new TypeError(`${where}: ${name}: ${fault}`);
  }
  return metadata;
});

/** What clients, calls, one-way calls and streams share. */
const commonFields = {
  timeoutMs: milliseconds(),
  inherit: boolean(),
  whenFull: oneOf(["wait", "fail"]),
  priority: oneOf(priorities),
  metadata: metadataField,
  middleware: middlewareField,
};

const clientFields = {
  ...commonFields,
  ...clientAttemptFields,
  instance: instanceField,
  key: text(0, 4096),
} satisfies FieldsOf<ClientOptions>;

const oneWayFields = {
  ...commonFields,
  signal: instance(AbortSignal),
  context: instance(ContextValues),
} satisfies FieldsOf<OneWayCallOptions>;

const callFields = {
  ...oneWayFields,
  ...attemptFields,
  onHeaders: callback<(headers: Metadata) => void>(),
  onTrailers: callback<(trailers: Metadata) => void>(),
} satisfies FieldsOf<CallOptions>;

const streamFields = {
  ...oneWayFields,
  onHeaders: callFields.onHeaders,
  onTrailers: callFields.onTrailers,
  retry: attemptFields.retry,
  idleTimeoutMs: idleTimeoutField,
  window: windowField,
} satisfies FieldsOf<StreamCallOptions>;

/** @throws TypeError or RangeError naming the option. */
export function assertClientOptions(options: ClientOptions): void {
  checkOptions("client", options, clientFields);
}

/** @throws TypeError or RangeError naming the option. */
export function assertCallOptions(options: CallOptions): void {
  checkOptions("call", options, callFields);
}

/** @throws TypeError or RangeError naming the option. */
export function assertOneWayOptions(options: OneWayCallOptions): void {
  checkOptions("call", options, oneWayFields);
}

/** @throws TypeError or RangeError naming the option. */
export function assertStreamOptions(options: StreamCallOptions): void {
  checkOptions("stream", options, streamFields);
}

/** Whether some kind of call has an option of this name. */
export function isCallOption(name: string): boolean {
  return Object.hasOwn(callFields, name) || Object.hasOwn(streamFields, name);
}
