import type { Priority } from "../base/flow/priority.ts";
import type { ErrorSchemas, NoErrors } from "./declared-error.ts";
import { type Method, makeMethod } from "./method.ts";
import type { Schema, VoidSchema } from "./schema.ts";

/** Options of `unary`. */
export interface UnaryOptions<I extends Schema, O extends Schema, E extends ErrorSchemas> {
  /** Schema of the input. Default: no input, `client.ping()`. */
  readonly input?: I | undefined;
  /** Schema of the output. Default: no output. */
  readonly output?: O | undefined;
  /**
   * Declared errors by reason: the schema of the data, as in `{ NotFound: z.object({ id: z.string() }) }`, or `error`
   * with a code and a text. At most 100. Default: none.
   */
  readonly errors?: E | undefined;
  /** Set to true when a second execution does no harm. The client may then retry calls. Default: false. */
  readonly idempotent?: boolean | undefined;
  /**
   * Set to true for a method that is not idempotent, but should survive a lost response. The server keeps responses for
   * a while and deduplicates retries, so that a call is executed at most once. This does not cover calls with regions.
   * Default: false.
   */
  readonly replay?: boolean | undefined;
  /** Time limit of a call in milliseconds, at most 2^31 - 1, unless the caller sets one. Default: the client's. */
  readonly timeoutMs?: number | undefined;
  /** Priority of a call that waits, at the caller or at the server, unless the caller sets one. Default: "normal". */
  readonly priority?: Priority | undefined;
}

/**
 * Describes a method with one request and one response.
 *
 * The schemas of `input`, `output` and `errors` may come from any Standard Schema library. Both sides validate:
 *
 * - The client validates its input and sends the value unchanged. The server parses it. Defaults and transforms
 *   therefore run once, at the server, and the handler receives their result.
 * - The server parses the handler's output and sends the result, without fields that the contract does not name. The
 *   client validates the received value and returns it unchanged. Transforms therefore run once, at the server, and an
 *   output schema must accept its own output: `z.string().transform(Number)` does not work, `z.coerce.number()` does.
 *   The same holds for the data of a declared error.
 *
 * @throws TypeError for an unknown option, a value that is not a schema, `idempotent` together with `replay`, a
 * `timeoutMs` that is not a positive number, or an unknown `priority`.
 *
 * @example
 * const Files = service("files.v1", {
 *   stat: unary({
 *     input: z.object({ path: z.string() }),
 *     output: z.object({ bytes: z.number() }),
 *     errors: { NotFound: z.object({ path: z.string() }) },
 *     idempotent: true,
 *     timeoutMs: 1_000,
 *   }),
 * });
 */
export function unary<
  I extends Schema = VoidSchema,
  O extends Schema = VoidSchema,
  E extends ErrorSchemas = NoErrors,
>(options: UnaryOptions<I, O, E> = {}): Method<"unary", I, O, E> {
  // The defaults of the type parameters describe options that are left out. TypeScript cannot see that.
  return makeMethod("unary", options) as Method<"unary", I, O, E>;
}
