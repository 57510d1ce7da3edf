import type { Schema } from "cinnabar/standard";

/** What a value lacks. */
interface Issue {
  readonly message: string;
  readonly path: readonly PropertyKey[];
}

/** What the JSON Schemas of these contracts are made of: a part of the draft 2020-12. */
export interface JsonShape {
  readonly type?: "object" | "array" | "string" | "integer" | "number" | "boolean";
  readonly description?: string;
  readonly enum?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly maxLength?: number;
  readonly properties?: Readonly<Record<string, JsonShape>>;
  readonly required?: readonly string[];
  readonly items?: JsonShape;
}

/**
 * A schema of the type `T` that checks a value by this JSON Schema, and gives the JSON Schema to tools. It accepts
 * members that the JSON Schema does not name: a later version may have more of them.
 */
export function shaped<T>(shape: JsonShape): Schema<T> {
  const jsonSchema = () => ({ ...shape });
  return Object.freeze({
    "~standard": Object.freeze({
      version: 1 as const,
      vendor: "cinnabar",
      validate(value: unknown) {
        const issues: Issue[] = [];
        check(value, shape, [], issues);
        return issues.length > 0 ? { issues } : { value: value as T };
      },
      jsonSchema: { input: jsonSchema, output: jsonSchema },
    }),
  });
}

function check(value: unknown, shape: JsonShape, path: readonly PropertyKey[], issues: Issue[]): void {
  const { type, properties = {}, required = [], items } = shape;
  const fault = type === undefined ? "" : typeFault(value, type) || boundFault(value, shape);
  if (fault !== "") {
    issues.push({ message: fault, path: [...path] });
    return;
  }
  if (type === "array" && items !== undefined)
    for (const [index, item] of (value as unknown[]).entries()) check(item, items, [...path, index], issues);
  if (type !== "object") return;
  const object = value as Record<string, unknown>;
  for (const [name, of] of Object.entries(properties)) {
    const isMissing = !Object.hasOwn(object, name) || object[name] === undefined;
    if (!isMissing) check(object[name], of, [...path, name], issues);
    else if (required.includes(name)) issues.push({ message: "is missing", path: [...path, name] });
  }
}

function typeFault(value: unknown, type: NonNullable<JsonShape["type"]>): string {
  const is = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  const fits = type === "integer" ? Number.isSafeInteger(value) : is === type;
  return fits ? "" : `expected ${type}, received ${is}`;
}

function boundFault(value: unknown, { enum: words, minimum, maximum, maxLength }: JsonShape): string {
  if (typeof value === "string") {
    if (words !== undefined && !words.includes(value)) return `expected one of ${words.join(", ")}`;
    if (maxLength !== undefined && value.length > maxLength)
      return `expected at most ${maxLength} characters`;
  }
  if (typeof value !== "number") return "";
  if (Number.isNaN(value)) return "expected a number, received NaN";
  if (minimum !== undefined && value < minimum) return `expected at least ${minimum}`;
  return maximum !== undefined && value > maximum ? `expected at most ${maximum}` : "";
}
