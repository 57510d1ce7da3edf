import type { Priority } from "../base/flow/priority.ts";
import {
  type ErrorSchemas,
  type MethodBase,
  makeMethod,
  type NoErrors,
  type StreamWindow,
} from "./method.ts";
import type { Schema, VoidSchema } from "./schema.ts";

/** A method with one request and a stream of items from the server: a frozen value, made by `serverStream`. */
export interface ServerStreamMethod<
  I extends Schema = Schema,
  O extends Schema = Schema,
  E extends ErrorSchemas = ErrorSchemas,
> extends MethodBase {
  readonly kind: "serverStream";
  readonly input: I;
  readonly items: VoidSchema;
  readonly output: O;
  readonly errors: E;
}

/** A method with a stream of items from the client and one response: a frozen value, made by `clientStream`. */
export interface ClientStreamMethod<
  T extends Schema = Schema,
  O extends Schema = Schema,
  I extends Schema = Schema,
  E extends ErrorSchemas = ErrorSchemas,
> extends MethodBase {
  readonly kind: "clientStream";
  readonly input: I;
  readonly items: T;
  readonly output: O;
  readonly errors: E;
}

/** A method with a stream of items in each direction: a frozen value, made by `duplexStream`. */
export interface DuplexStreamMethod<
  T extends Schema = Schema,
  O extends Schema = Schema,
  I extends Schema = Schema,
  E extends ErrorSchemas = ErrorSchemas,
> extends MethodBase {
  readonly kind: "duplexStream";
  readonly input: I;
  readonly items: T;
  readonly output: O;
  readonly errors: E;
}

/** What the options of all streams have in common. */
export interface StreamOptions<E extends ErrorSchemas> {
  /**
   * Declared errors: the schema of the data by reason. At most 100. An error may come after any number of items.
   * Default: none.
   */
  readonly errors?: E;
  /**
   * Set to true when a second execution does no harm. The client may then retry a stream before its first item. Default:
   * false.
   */
  readonly idempotent?: boolean;
  /** Time limit of a whole stream in milliseconds, unless the caller sets one. Default: none. */
  readonly timeoutMs?: number;
  /**
   * How long a side waits for the other, in milliseconds, before the stream fails with `deadline_exceeded`. Time in
   * which the waiting side itself takes no items does not count. A stream ends at most a quarter later than that.
   * `false`: no bound; a dead peer is noticed by the heartbeat all the same. Default 60,000.
   */
  readonly idleTimeoutMs?: number | false;
  /**
   * Items and bytes that may be on their way or wait for their consumer, in each direction. It bounds the memory of a
   * stream whose consumer is slow. Default: 1024 items and 256 KiB.
   */
  readonly window?: Partial<StreamWindow>;
  /** Priority of the request that opens the stream, unless the caller sets one. Default: "normal". */
  readonly priority?: Priority;
}

/** Options of `serverStream`. */
export interface ServerStreamOptions<I extends Schema, O extends Schema, E extends ErrorSchemas>
  extends StreamOptions<E> {
  /** Schema of the input. Default: no input. */
  readonly input?: I;
  /** Schema of each item that the server sends. */
  readonly output: O;
}

/** Options of `clientStream`. */
export interface ClientStreamOptions<
  T extends Schema,
  O extends Schema,
  I extends Schema,
  E extends ErrorSchemas,
> extends StreamOptions<E> {
  /** Schema of each item that the client sends. */
  readonly items: T;
  /** Schema of the input that opens the stream: `call.input` in the handler. Default: no input. */
  readonly input?: I;
  /** Schema of the answer. Default: no answer. */
  readonly output?: O;
}

/** Options of `duplexStream`. */
export interface DuplexStreamOptions<
  T extends Schema,
  O extends Schema,
  I extends Schema,
  E extends ErrorSchemas,
> extends StreamOptions<E> {
  /** Schema of each item that the client sends. */
  readonly items: T;
  /** Schema of each item that the server sends. */
  readonly output: O;
  /** Schema of the input that opens the stream: `call.input` in the handler. Default: no input. */
  readonly input?: I;
}

/**
 * Describes a method with one request and a stream of items from the server. Its handler is an async generator, or
 * returns anything that can be iterated. Its client gets an `AsyncIterable`.
 *
 * Both sides validate each item, as they validate the output of a unary method.
 *
 * @throws TypeError for an unknown option, or a value that is not a schema.
 *
 * @example
 * const Logs = service("logs.v1", {
 *   tail: serverStream({ input: z.object({ file: z.string() }), output: z.string() }),
 * });
 */
export function serverStream<
  O extends Schema,
  I extends Schema = VoidSchema,
  E extends ErrorSchemas = NoErrors,
>(options: ServerStreamOptions<I, O, E>): ServerStreamMethod<I, O, E> {
  assertGiven("serverStream", "output", options.output);
  return makeMethod("serverStream", options) as ServerStreamMethod<I, O, E>;
}

/**
 * Describes a method with a stream of items from the client and one response. Its handler takes an `AsyncIterable` of
 * the items; `call.input` is the input that opened the stream.
 *
 * @throws TypeError for an unknown option, or a value that is not a schema.
 *
 * @example
 * const Files = service("files.v1", {
 *   upload: clientStream({
 *     input: z.object({ name: z.string() }),
 *     items: bytes(),
 *     output: z.object({ bytes: z.number() }),
 *   }),
 * });
 */
export function clientStream<
  T extends Schema,
  O extends Schema = VoidSchema,
  I extends Schema = VoidSchema,
  E extends ErrorSchemas = NoErrors,
>(options: ClientStreamOptions<T, O, I, E>): ClientStreamMethod<T, O, I, E> {
  assertGiven("clientStream", "items", options.items);
  return makeMethod("clientStream", options) as ClientStreamMethod<T, O, I, E>;
}

/**
 * Describes a method with a stream of items in each direction. Both directions are independent: either side may send
 * when it likes, and the client may end its items before the server does.
 *
 * @throws TypeError for an unknown option, or a value that is not a schema.
 *
 * @example
 * const Chat = service("chat.v1", {
 *   join: duplexStream({ input: z.object({ room: z.string() }), items: z.string(), output: z.string() }),
 * });
 */
export function duplexStream<
  T extends Schema,
  O extends Schema,
  I extends Schema = VoidSchema,
  E extends ErrorSchemas = NoErrors,
>(options: DuplexStreamOptions<T, O, I, E>): DuplexStreamMethod<T, O, I, E> {
  assertGiven("duplexStream", "items", options.items);
  assertGiven("duplexStream", "output", options.output);
  return makeMethod("duplexStream", options) as DuplexStreamMethod<T, O, I, E>;
}

function assertGiven(kind: string, name: string, schema: Schema | undefined): void {
  if (schema === undefined) throw new TypeError(`${kind}: ${name} is missing; it is the schema of each item`);
}
