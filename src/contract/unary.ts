import { assertPriority, type Priority } from "../flow/priority.ts";
import { assertIdentifier, assertOptions, assertSchema, assertTimeoutMs } from "./check.ts";
import type { Schema } from "./schema.ts";
import { type VoidSchema, voidSchema } from "./void-schema.ts";

/** Marks a method description; global, so that duplicate copies of the package know each other's. */
export const methodBrand: unique symbol = Symbol.for("cinnabar.Method");

/** The kinds of method there are. */
export type MethodKind = "unary";

/** The errors a method declares: the schema of each one's data by its reason. */
export type ErrorSchemas = { readonly [reason: string]: Schema };

/** What a method without declared errors declares. */
export type NoErrors = Record<never, never>;

/**
 * What every kind of method has.
 *
 * It leaves out the schemas on purpose: `service` asks for a record of these, and a schema in that type would flow back
 * into `unary`'s own inference and widen whatever its options leave out.
 */
export interface MethodBase {
  readonly [methodBrand]: true;
  readonly kind: MethodKind;
  /** Whether executing it twice does no more harm than once. */
  readonly idempotent: boolean;
  /** Whether the server keeps its answers, so that a call that is tried again is not executed again. */
  readonly replay: boolean;
  /** How long a call may take unless its caller says otherwise, in milliseconds; `undefined` leaves it to the client. */
  readonly timeoutMs: number | undefined;
  /** How urgent its calls are unless their caller says otherwise. */
  readonly priority: Priority;
}

/** A method of one request and one response: a frozen plain value, made by `unary`. */
export interface UnaryMethod<
  I extends Schema = Schema,
  O extends Schema = Schema,
  E extends ErrorSchemas = ErrorSchemas,
> extends MethodBase {
  readonly kind: "unary";
  readonly input: I;
  readonly output: O;
  readonly errors: E;
}

/** A method of any kind, with its schemas. */
export type AnyMethod = UnaryMethod;

/** What `unary` takes. */
export interface UnaryOptions<I extends Schema, O extends Schema, E extends ErrorSchemas> {
  /** The schema of the input. Left out, the method takes none: `client.ping()`. */
  readonly input?: I;
  /** The schema of the output. Left out, the method returns nothing. */
  readonly output?: O;
  /** The schema of each declared error's data, by reason: `{ NotFound: z.object({ id: z.string() }) }`. Default: none. */
  readonly errors?: E;
  /** Whether executing it twice does no more harm than once, so that it may be retried. Default: false. */
  readonly idempotent?: boolean;
  /**
   * Whether the server keeps its answers for a while, so that a call whose answer was lost may be tried again and is still executed at most once. For
   * methods that are not idempotent. Default: false. A call that lends regions is not covered.
   */
  readonly replay?: boolean;
  /** How long a call may take unless its caller says otherwise, in milliseconds. Default: the client's. */
  readonly timeoutMs?: number;
  /** How urgent its calls are, beside others that wait at the caller or at the server. Default: "normal". */
  readonly priority?: Priority;
}

const knownOptions = ["input", "output", "errors", "idempotent", "replay", "timeoutMs", "priority"];
const maxErrors = 100;

/**
 * Describes a method of one request and one response, to be put into a `service`.
 *
 * Any Standard Schema will do for `input`, `output` and the data of `errors`. Who runs which schema:
 * - The client checks its input and sends the original value; the server parses that, so defaults and transforms run
 *   once, at the server, and the handler sees their result.
 * - The server parses what the handler returns and sends the result, so fields the contract does not name stay home; the
 *   client checks what arrives. Hence an output schema must accept its own output: `z.string().transform(Number)` as an
 *   output cannot work, `z.coerce.number()` can. The same holds for the data of a declared error.
 *
 * @throws TypeError for an unknown option, a value that is no schema, `idempotent` together with `replay`, a `timeoutMs` that is not a positive number, or a `priority` there is not.
 */
export function unary<
  I extends Schema = VoidSchema,
  O extends Schema = VoidSchema,
  E extends ErrorSchemas = NoErrors,
>(options: UnaryOptions<I, O, E> = {}): UnaryMethod<I, O, E> {
  assertOptions("unary", options, knownOptions);
  const { input = voidSchema, output = voidSchema, errors = {}, timeoutMs } = options;
  const { idempotent = false, replay = false, priority = "normal" } = options;
  assertSchema("unary: input", input);
  assertSchema("unary: output", output);
  if (typeof idempotent !== "boolean") throw new TypeError("unary: idempotent must be true or false");
  if (typeof replay !== "boolean") throw new TypeError("unary: replay must be true or false");
  if (idempotent && replay)
    throw new TypeError(
      "unary: an idempotent method may be executed twice, replay is for those that may not",
    );
  if (timeoutMs !== undefined) assertTimeoutMs("unary: timeoutMs", timeoutMs);
  assertPriority("unary: priority", priority);
  // What is left out is what the type parameters' defaults say, which TypeScript cannot see through.
  return Object.freeze<UnaryMethod>({
    [methodBrand]: true,
    kind: "unary",
    input,
    output,
    errors: checkErrors(errors),
    idempotent,
    replay,
    timeoutMs,
    priority,
  }) as UnaryMethod<I, O, E>;
}

/** A frozen copy without a prototype: reasons come from the wire and must not find `Object.prototype`'s members. */
function checkErrors(errors: ErrorSchemas): ErrorSchemas {
  if (typeof errors !== "object" || errors === null)
    throw new TypeError("unary: errors must be an object of schemas");
  const entries = Object.entries(errors);
  if (entries.length > maxErrors) {
    throw new TypeError(`unary: errors has ${entries.length} reasons, the limit is ${maxErrors}`);
  }
  const copy: Record<string, Schema> = Object.create(null);
  for (const [reason, schema] of entries) {
    assertIdentifier("unary: errors", reason);
    assertSchema(`unary: errors.${reason}`, schema);
    copy[reason] = schema;
  }
  return Object.freeze(copy);
}

/** Whether a value is a method description. */
export function isMethod(value: unknown): value is AnyMethod {
  return (
    typeof value === "object" &&
    value !== null &&
    (value as { [methodBrand]?: unknown })[methodBrand] === true
  );
}
