import type { Schema } from "cinnabar/standard";
import type { Failure } from "./tally.ts";

const longestMessage = 500;

/** The value as the schema makes it, or why it is none. */
export async function parse(
  schema: Schema,
  value: unknown,
  name: "input" | "output",
): Promise<{ readonly value: unknown } | { readonly failure: Failure }> {
  try {
    const { validate } = schema["~standard"];
    const result = await validate(value);
    if (result.issues === undefined) return { value: result.value };
    return {
      failure: invalid(
        result.issues.map((issue) => `${name}${pathOf(issue.path)}: ${issue.message}`).join("; "),
      ),
    };
  } catch (error) {
    return { failure: invalid(`the schema of ${name} threw: ${String(error)}`) };
  }
}

const invalid = (message: string): Failure => ({
  code: "invalid_argument",
  message: message.slice(0, longestMessage),
  retryable: false,
});

/** As `.rows.3.id`. */
function pathOf(path: readonly unknown[] | undefined): string {
  const keys = (path ?? []).map((segment) => {
    const key =
      typeof segment === "object" && segment !== null ? (segment as { key?: unknown }).key : segment;
    return `.${String(key)}`;
  });
  return keys.join("");
}
