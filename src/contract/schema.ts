import type { StandardSchemaV1 } from "@standard-schema/spec";

export type { StandardSchemaV1 };

/** Any schema that follows Standard Schema v1: zod, valibot, arktype, or a hand-made one. */
export type Schema<Input = unknown, Output = Input> = StandardSchemaV1<Input, Output>;

/** What a schema accepts. */
export type InferInput<S extends Schema> = StandardSchemaV1.InferInput<S>;

/** What a schema gives back once it has accepted. */
export type InferOutput<S extends Schema> = StandardSchemaV1.InferOutput<S>;

/** One thing a schema found wrong. */
export type Issue = StandardSchemaV1.Issue;

/** A schema's verdict: the parsed value, or what is wrong with it. `issues === undefined` tells them apart. */
export type Validation<T> =
  | { readonly value: T; readonly issues?: undefined }
  | { readonly issues: readonly Issue[] };

/** Bounds on what `formatIssues` writes; the value may come from a hostile peer. */
const maxIssues = 5;
const maxSentenceLength = 500;

/**
 * Checks a value against a schema. The verdict comes at once when the schema is synchronous, so that the usual path costs
 * no turn of the loop; only an asynchronous schema gives a Promise. Whatever a schema throws passes through.
 */
export function validate<S extends Schema>(
  schema: S,
  value: unknown,
): Validation<InferOutput<S>> | Promise<Validation<InferOutput<S>>> {
  return schema["~standard"].validate(value) as
    | Validation<InferOutput<S>>
    | Promise<Validation<InferOutput<S>>>;
}

/** Whether a value can be used as a schema. */
export function isSchema(value: unknown): value is Schema {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  const standard = (value as { "~standard"?: { version?: unknown; validate?: unknown } })["~standard"];
  return standard?.version === 1 && typeof standard.validate === "function";
}

/**
 * The issues as one sentence: `input.id: expected string, received number; input.tags[2]: too long`. `root` names the
 * value that was checked. Says at most 5 issues and 500 characters, on one line, whatever the schema says.
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
