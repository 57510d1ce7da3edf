import { type Validation, validate } from "cinnabar/options";
import type { Schema } from "cinnabar/standard";
import type { Failure } from "./tally.ts";
import { isLater } from "./when-there.ts";

const longestMessage = 500;

/** The result of a schema for a value: the parsed value, or why it does not fit. */
export type Parsed = { readonly value: unknown } | { readonly failure: Failure };

/** Parses a value: at once, where the schema is synchronous. It neither throws nor rejects. */
export function parse(
  schema: Schema,
  value: unknown,
  name: "input" | "output" | "bulk" | "data",
): Parsed | Promise<Parsed> {
  try {
    const result = validate(schema, value);
    return isLater(result) ? judgeLater(result, name) : judge(result, name);
  } catch (error) {
    return threw(error, name);
  }
}

async function judgeLater(result: PromiseLike<Validation<unknown>>, name: string): Promise<Parsed> {
  try {
    return judge(await result, name);
  } catch (error) {
    return threw(error, name);
  }
}

function judge(result: Validation<unknown>, name: string): Parsed {
  if (result.issues === undefined) return { value: result.value };
  const issues = result.issues.map((issue) => `${name}${pathOf(issue.path)}: ${issue.message}`);
  return { failure: invalid(issues.join("; ")) };
}

const threw = (error: unknown, name: string): Parsed => ({
  failure: invalid(`the schema of ${name} threw: ${String(error)}`),
});

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
