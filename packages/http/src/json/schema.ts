import type { JsonSchema } from "cinnabar/inspect";

/*
 * Parts of a JSON Schema, with bounds on the work of reading a value by it: a schema may refer to itself in a circle, or
 * nest alternatives that no machine finishes.
 */

/** A value is not read to its end by a schema: that would take too long. */
export class TooLong extends Error {
  override readonly name = "TooLong";
}

/** The work that reading one value by a schema may take. */
export class Steps {
  #left = 1_000_000;
  #depth = 0;

  /** @throws TooLong when the work is used up. */
  take(count = 1): void {
    this.#left -= count;
    if (this.#left < 0) throw new TooLong();
  }

  /** Work one level deeper. @throws TooLong for too many levels. */
  inside<T>(work: () => T): T {
    this.take();
    if (this.#depth >= 256) throw new TooLong();
    this.#depth++;
    try {
      return work();
    } finally {
      this.#depth--;
    }
  }
}

/** Follows references within the same schema: `#` and `#/$defs/name`. */
export function resolved(schema: JsonSchema, root: JsonSchema, steps: Steps): JsonSchema {
  let at = schema;
  // A chain of references that leads nowhere ends.
  for (let hops = 0; typeof at.$ref === "string" && hops < 32; hops++) {
    steps.take();
    const words = at.$ref.split("/", 32).slice(1);
    at = words.reduce<JsonSchema>(
      (inside, word) => schemaIn(inside[word.replaceAll("~1", "/").replaceAll("~0", "~")]),
      at.$ref.startsWith("#") ? root : {},
    );
  }
  return at;
}

/** Whether values are bytes, whose JSON is base64. zod's `z.base64()` is a text, which has the same encoding. */
export function isBytes({ contentEncoding, format }: JsonSchema): boolean {
  return contentEncoding === "base64" && format !== "base64";
}

/** The schema in a place that may have one; `true` and a missing schema accept any value. */
export function schemaIn(part: unknown): JsonSchema {
  return isObject(part) ? part : {};
}

/** The schemas in a place that may have several. */
export function schemasIn(part: unknown): readonly JsonSchema[] {
  return Array.isArray(part) ? part.map(schemaIn) : [];
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
