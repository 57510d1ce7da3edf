import { codeNumbers, type RpcCode } from "../base/errors/code.ts";
import { assertIdentifier } from "../base/options/identifier.ts";
import { type FieldsOf, fail, oneOf, resolveOptions, text } from "../base/options/options.ts";
import {
  assertSchema,
  type InferInput,
  type InferOutput,
  type Schema,
  schemaField,
  type VoidSchema,
  voidSchema,
} from "./schema.ts";

/** Marks a declared error. The symbol is global, so that copies of the package recognise each other's. */
export const errorBrand: unique symbol = Symbol.for("cinnabar.DeclaredError");

/** The declared errors of a method: by reason, the schema of the error's data, or a declaration made by `error`. */
export type ErrorSchemas = { readonly [reason: string]: Schema };

/** The errors of a method without declared errors. */
export type NoErrors = Record<never, never>;

/** A declared error of a method: frozen, made by `error` or from a schema alone. It is also the schema of its data. */
export interface ErrorDeclaration<S extends Schema = Schema> extends Schema<InferInput<S>, InferOutput<S>> {
  readonly [errorBrand]: true;
  /** The schema of the error's data. */
  readonly data: Schema;
  /** The code that callers see. */
  readonly code: RpcCode;
  /** The text of the error, unless the handler gives another one. */
  readonly message: string | undefined;
}

/** The declared errors of a method with their codes and texts, by reason. */
export type ErrorDeclarations<E extends ErrorSchemas = ErrorSchemas> = {
  readonly [R in keyof E]: ErrorDeclaration<E[R]>;
};

/** Options of `error`. */
export interface DeclaredErrorOptions<S extends Schema> {
  /** Schema of the error's data. Default: no data. */
  readonly data?: S | undefined;
  /** Code of the error, for logs, metrics, HTTP statuses. Callers match the reason. Default: "failed_precondition". */
  readonly code?: RpcCode | undefined;
  /**
   * One sentence for people, of 1 to 2,048 characters. `call.fail` may give another one. Default: "declared error" and
   * the reason.
   */
  readonly message?: string | undefined;
}

const errorFields = {
  data: schemaField,
  code: oneOf(Object.keys(codeNumbers) as RpcCode[], "failed_precondition"),
  message: text(1, 2048),
} satisfies FieldsOf<DeclaredErrorOptions<Schema>>;

/**
 * Declares an error of a method with its code and its text. Without a code and a text, the schema of the data alone
 * declares the error.
 *
 * @throws TypeError for an unknown option, an unknown code, or `data` that is not a schema.
 *
 * @example
 * const Orders = service("orders.v1", {
 *   place: unary({
 *     input: z.object({ item: z.string() }),
 *     errors: {
 *       OutOfStock: error({ data: z.object({ left: z.int() }), code: "resource_exhausted", message: "sold out" }),
 *       NoSuchItem: error({ code: "not_found" }),
 *     },
 *   }),
 * });
 */
export function error<S extends Schema = VoidSchema>(
  options: DeclaredErrorOptions<S> = {},
): ErrorDeclaration<S> {
  const { data = voidSchema, code, message } = resolveOptions("error", options, errorFields);
  return declaration(data, code, message) as ErrorDeclaration<S>;
}

function declaration(data: Schema, code: RpcCode, message: string | undefined): ErrorDeclaration {
  return Object.freeze<ErrorDeclaration>({
    [errorBrand]: true,
    "~standard": data["~standard"],
    data,
    code,
    message,
  });
}

const maxErrors = 100;

/**
 * The declarations of a method's errors. The copy is frozen and has no prototype: reasons come from the wire and must
 * not match members of `Object.prototype`.
 *
 * @throws TypeError that names the field and the limit.
 */
export function declareErrors(kind: string, name: string, errors: unknown): ErrorDeclarations {
  if (typeof errors !== "object" || errors === null)
    return fail(TypeError, kind, name, "an object of schemas", errors);
  const entries = Object.entries(errors);
  if (entries.length > maxErrors) {
    throw new TypeError(`${kind}: errors has ${entries.length} reasons; the limit is ${maxErrors}`);
  }
  const copy: Record<string, ErrorDeclaration> = Object.create(null);
  for (const [reason, schema] of entries) {
    assertIdentifier(`${kind}: errors`, reason);
    assertSchema(`${kind}: errors.${reason}`, schema);
    copy[reason] = isDeclaration(schema) ? schema : declaration(schema, "failed_precondition", undefined);
  }
  return Object.freeze(copy);
}

function isDeclaration(schema: Schema): schema is ErrorDeclaration {
  return (schema as Partial<ErrorDeclaration>)[errorBrand] === true;
}
