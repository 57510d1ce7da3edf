import type { StandardSchemaV1 } from "@standard-schema/spec";
import { checkedBy } from "../base/options/options.ts";
import { zodValidatorOf } from "./zod-validator.ts";

export type { StandardSchemaV1 };

/** A schema of any library that implements Standard Schema v1: zod, valibot, arktype, or your own. */
export type Schema<Input = unknown, Output = Input> = StandardSchemaV1<Input, Output>;

/** The type that a schema accepts. */
export type InferInput<S extends Schema> = StandardSchemaV1.InferInput<S>;

/** The type that a schema returns. */
export type InferOutput<S extends Schema> = StandardSchemaV1.InferOutput<S>;

/** One problem that a schema found. */
export type Issue = StandardSchemaV1.Issue;

/** The result of a validation: the parsed value, or the issues. `issues === undefined` distinguishes them. */
export type Validation<T> =
  | { readonly value: T; readonly issues?: undefined }
  | { readonly issues: readonly Issue[] };

/** Limits of `formatIssues`: the value may come from a hostile peer. */
const maxIssues = 5;
const maxSentenceLength = 500;

/**
 * Validates a value. A synchronous schema returns its result directly, without a turn of the event loop; an
 * asynchronous schema returns a promise. Each function of a schema runs once. Errors that a schema throws pass through.
 */
export function validate<S extends Schema>(
  schema: S,
  value: unknown,
): Validation<InferOutput<S>> | Promise<Validation<InferOutput<S>>> {
  return validatorOf(schema).validate(value) as
    | Validation<InferOutput<S>>
    | Promise<Validation<InferOutput<S>>>;
}

/** The validating part of a schema: `validate(value)`. */
export type Validator = Schema["~standard"];

/**
 * The validator of a schema. Code that validates for each call keeps it. Finding it can cost more than calling it, in
 * schemas that have many properties or make it anew each time.
 */
export function validatorOf(schema: Schema): Validator {
  const standard = schema["~standard"];
  return standard.vendor === "zod" ? zodValidatorOf(schema) : standard;
}

/** Whether a value is a Standard Schema v1. */
export function isSchema(value: unknown): value is Schema {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  const standard = (value as { "~standard"?: { version?: unknown; validate?: unknown } })["~standard"];
  return standard?.version === 1 && typeof standard.validate === "function";
}

/**
 * Formats issues as one line: `input.id: expected string, received number; input.tags[2]: too long`. `root` names the
 * value that was validated. The line has at most 5 issues and 500 characters.
 */
export function formatIssues(root: string, issues: readonly Issue[]): string {
  const said = issues
    .slice(0, maxIssues)
    .map((issue) => `${root}${formatPath(issue.path)}: ${formatMessage(issue)}`);
  const unsaid = issues.length - said.length;
  const tail = unsaid > 0 ? `; and ${unsaid} more` : "";
  const sentence = said.join("; ");
  const room = maxSentenceLength - tail.length;
  return (sentence.length > room ? `${sentence.slice(0, room - 1)}…` : sentence) + tail;
}

function formatPath(path: Issue["path"]): string {
  let text = "";
  for (const segment of path ?? []) {
    // A path may name thousands of keys, each as long as a message allows.
    if (text.length > maxSentenceLength) break;
    const key = typeof segment === "object" ? segment.key : segment;
    if (typeof key === "number") text += `[${key}]`;
    else if (typeof key === "symbol") text += `[${String(key)}]`;
    else if (/^[A-Za-z_$][\w$]*$/.test(key)) text += `.${key}`;
    else text += `[${JSON.stringify(key.slice(0, maxSentenceLength))}]`;
  }
  return text;
}

function formatMessage(issue: Issue): string {
  const message = issue.message.slice(0, maxSentenceLength);
  // zod begins nearly every message with these words, and "input" is often wrong here: outputs are checked too.
  const plain = message.startsWith("Invalid input: ") ? message.slice("Invalid input: ".length) : message;
  // Control characters could forge lines in a log.
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is being removed
  return plain.replace(/[\u0000-\u001f\u007f\u2028\u2029]+/g, " ");
}

/** @throws TypeError when the value is not a Standard Schema v1. */
export function assertSchema(where: string, value: unknown): void {
  if (!isSchema(value)) {
    throw new TypeError(
      `${where} must be a Standard Schema v1 (zod, valibot, arktype, …), with a "~standard" property`,
    );
  }
}

/** An option that is a schema. */
export const schemaField = checkedBy((where, name, value): Schema => {
  assertSchema(`${where}: ${name}`, value);
  return value as Schema;
});

/** Marks the schema of no value. The symbol is global, so that copies of the package recognise each other's. */
export const voidBrand: unique symbol = Symbol.for("cinnabar.VoidSchema");

/** The schema of no value: the default of a method's `input` and `output`. */
export interface VoidSchema extends Schema<void, void> {
  readonly [voidBrand]: true;
}

/** Whether a method declares no value here: its callers then pass no value. */
export function isVoidSchema(schema: Schema): schema is VoidSchema {
  return (schema as Partial<VoidSchema>)[voidBrand] === true;
}

/**
 * The only schema of no value. It accepts `undefined` and `null` (some peers cannot send `undefined`) and returns
 * `undefined`. Encoding and validation are skipped for it.
 */
export const voidSchema: VoidSchema = Object.freeze<VoidSchema>({
  [voidBrand]: true,
  "~standard": Object.freeze({
    version: 1 as const,
    vendor: "cinnabar",
    validate: (value: unknown) =>
      value === undefined || value === null
        ? { value: undefined }
        : {
            issues: [
              { message: `expected nothing, received ${Array.isArray(value) ? "array" : typeof value}` },
            ],
          },
  }),
});
