import { isMap, isNativeError, isSet } from "node:util/types";

/**
 * The encoder's position in a value, for its errors. The encoder leaves a trail: the index of the current part, by the
 * depth of its collection. Keys would cost more to record.
 */

/** A longer path ends with an ellipsis. */
const longestPath = 200;

/** The path to the part at `depth` of `value`, from the trail: `.items[2].done`. Runs no code of the value. */
export function pathIn(value: unknown, depth: number, trail: Int32Array): string {
  let path = "";
  for (const step of stepsIn(value, depth, trail)) {
    if (step === undefined || path.length > longestPath) return `${path}…`;
    path += step.text;
  }
  return path;
}

/** Describes the first part on the way to `depth` that repeats `value` or a part above it; "" without such a part. */
export function cycleIn(value: unknown, depth: number, trail: Int32Array): string {
  const pathOf = new Map<unknown, string>([[value, "the whole value"]]);
  let path = "";
  for (const step of stepsIn(value, depth, trail)) {
    if (step === undefined) return "";
    path += step.text;
    const first = typeof step.part === "object" ? pathOf.get(step.part) : undefined;
    if (first !== undefined) return `${shortened(path)} is ${shortened(first)} again`;
    pathOf.set(step.part, path);
  }
  return "";
}

/** The steps from `value` to its part at `depth`. Ends with undefined where a step cannot be known. */
function* stepsIn(value: unknown, depth: number, trail: Int32Array): Generator<Step | undefined> {
  let at = value;
  for (let level = 0; level < depth; level++) {
    // Their tag is a separate level.
    if (isMap(at) || isSet(at) || isError(at)) level++;
    const step = stepInto(at, trail[level] as number);
    yield step;
    if (step === undefined) return;
    at = step.part;
  }
}

function shortened(path: string): string {
  return path.length > longestPath ? `${path.slice(0, longestPath)}…` : path;
}

interface Step {
  readonly text: string;
  readonly part: unknown;
}

/** Undefined where the encoder took another way: into the result of a `toJSON`, or past a getter. */
function stepInto(value: unknown, index: number): Step | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  if (Array.isArray(value)) return stepTo(value, String(index), `[${index}]`);
  if (isMap(value)) {
    const text = `[${index % 2 === 0 ? "key" : "value"} ${index >> 1}]`;
    return { text, part: [...value].flat()[index] };
  }
  if (isSet(value)) return { text: `[element ${index}]`, part: [...value][index] };
  if (isError(value)) {
    if (index === 3) return stepTo(value, "errors", ".errors");
    return stepTo(value, "cause", ".cause");
  }
  const key = Object.keys(value)[index];
  if (key === undefined || "toJSON" in value) return undefined;
  return stepTo(value, key, /^[A-Za-z_$][\w$]*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`);
}

/** Whether a value is an error of any realm. */
function isError(value: unknown): boolean {
  return value instanceof Error || isNativeError(value);
}

function stepTo(value: object, key: string, text: string): Step | undefined {
  const property = Object.getOwnPropertyDescriptor(value, key);
  return property && "value" in property ? { text, part: property.value } : undefined;
}
