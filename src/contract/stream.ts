import type { Priority } from "../base/flow/priority.ts";
import type { ErrorSchemas, NoErrors } from "./declared-error.ts";
import { type Method, makeMethod, type StreamWindowOptions } from "./method.ts";
import { isSchema, type Schema, type VoidSchema } from "./schema.ts";

/** Options of a method with streams. Each kind of stream requires some of its schemas. */
export interface StreamOptions<I extends Schema, O extends Schema, E extends ErrorSchemas> {
  /** Schema of the input that opens the stream. Default: no input. */
  readonly input?: I | undefined;
  /** Schema of each item that the server sends; of a client stream, schema of the answer. Default: no answer. */
  readonly output?: O | undefined;
  /**
   * Declared errors by reason: the schema of the data, or `error` with a code and a text. At most 100. An error may
   * come after any number of items. Default: none.
   */
  readonly errors?: E | undefined;
  /**
   * Set to true when a second execution does no harm. The client may then retry a stream before its first item. Default:
   * false.
   */
  readonly idempotent?: boolean | undefined;
  /** Time limit of a whole stream in milliseconds, unless the caller sets one. Default: none. */
  readonly timeoutMs?: number | undefined;
  /**
   * How long a side waits for the other, in milliseconds, before the stream fails with `deadline_exceeded`. Time in
   * which the waiting side itself takes no items does not count. A stream ends at most a quarter later than that.
   * `false`: no limit; the heartbeat still detects a dead peer. Default 60,000.
   */
  readonly idleTimeoutMs?: number | false | undefined;
  /**
   * Items and bytes that may be on their way or wait for their consumer, in each direction. It bounds the memory of a
   * stream with a slow consumer. Default: 1024 items and 256 KiB.
   */
  readonly window?: StreamWindowOptions | undefined;
  /** Priority of the request that opens the stream, unless the caller sets one. Default: "normal". */
  readonly priority?: Priority | undefined;
}

/**
 * Describes a method with one request and a stream of items from the server. Its handler is an async generator, or
 * returns any iterable. Its client gets an `AsyncIterable`.
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
>(options: StreamOptions<I, O, E> & { readonly output: O }): Method<"serverStream", I, O, E> {
  assertGiven("serverStream", "output", options);
  return makeMethod("serverStream", options) as Method<"serverStream", I, O, E>;
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
>(options: StreamOptions<I, O, E> & { readonly items: T }): Method<"clientStream", I, O, E, T> {
  assertGiven("clientStream", "items", options);
  return makeMethod("clientStream", options) as Method<"clientStream", I, O, E, T>;
}

/**
 * Describes a method with a stream of items in each direction. Both directions are independent: either side may send at
 * any time, and the client may end its items before the server does.
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
>(
  options: StreamOptions<I, O, E> & { readonly items: T; readonly output: O },
): Method<"duplexStream", I, O, E, T> {
  assertGiven("duplexStream", "items", options);
  assertGiven("duplexStream", "output", options);
  return makeMethod("duplexStream", options) as Method<"duplexStream", I, O, E, T>;
}

function assertGiven<N extends "items" | "output">(
  kind: string,
  name: N,
  options: { readonly [name in N]?: Schema },
): void {
  if (options?.[name] === undefined && !isSchema(options))
    throw new TypeError(`${kind}: ${name} is missing; it is the schema of each item`);
}
