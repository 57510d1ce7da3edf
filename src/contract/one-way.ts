import type { Priority } from "../base/flow/priority.ts";
import type { NoErrors } from "./declared-error.ts";
import { type Method, makeMethod } from "./method.ts";
import type { Schema, VoidSchema } from "./schema.ts";

/** Options of `oneWay`. */
export interface OneWayOptions<I extends Schema> {
  /** Schema of the input. It carries no regions and no byte streams. Default: no input. */
  readonly input?: I | undefined;
  /**
   * Time limit in milliseconds, for sending and for the handler, unless the caller sets one. Default: the client's.
   */
  readonly timeoutMs?: number | undefined;
  /** Priority of a call that waits, at the caller or at the server, unless the caller sets one. Default: "normal". */
  readonly priority?: Priority | undefined;
}

/**
 * Describes a method without a response. A call is executed at most once. The client's promise resolves when the
 * request has been handed over to be sent. It does not confirm that the server executed the call. Failures at the
 * server are only reported to `onHandlerError` there.
 *
 * @throws TypeError for an unknown option, or a value that is not a schema.
 *
 * @example
 * const Metrics = service("metrics.v1", {
 *   count: oneWay({ input: z.object({ name: z.string(), by: z.number() }) }),
 * });
 */
export function oneWay<I extends Schema = VoidSchema>(
  options: OneWayOptions<I> = {},
): Method<"oneWay", I, VoidSchema, NoErrors> {
  return makeMethod("oneWay", options) as unknown as Method<"oneWay", I, VoidSchema, NoErrors>;
}
