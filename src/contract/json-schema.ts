import type { Schema } from "./schema.ts";

/** A JSON Schema of the draft 2020-12, as plain data. */
export type JsonSchema = Readonly<Record<string, unknown>>;

/** The object of a library that implements Standard JSON Schema. */
interface Converter {
  readonly input: (options: object) => Record<string, unknown>;
  readonly output: (options: object) => Record<string, unknown>;
}

/** zod's data about each part of a schema, before it goes into the JSON Schema. */
interface ZodJsonPart {
  readonly zodSchema: { readonly _zod: { readonly def: { readonly type: string } } };
  readonly jsonSchema: Record<string, unknown>;
}

/** The JSON form of values that JSON does not have. */
const valuesBeyondJson: Readonly<Record<string, JsonSchema>> = {
  bigint: { type: "string", "x-cinnabar-type": "bigint" },
  date: { type: "string", format: "date-time", "x-cinnabar-type": "date" },
  map: {
    type: "array",
    items: { type: "array", minItems: 2, maxItems: 2 },
    "x-cinnabar-type": "map",
  },
  set: { type: "array", uniqueItems: true, "x-cinnabar-type": "set" },
  nan: { const: "NaN" },
};

const zodOptions = {
  unrepresentable: "any",
  override: ({ zodSchema, jsonSchema }: ZodJsonPart): void => {
    Object.assign(jsonSchema, valuesBeyondJson[zodSchema._zod.def.type]);
  },
};

/**
 * The JSON Schema of a schema's accepted values (`input`) or returned values (`output`), where its library implements
 * Standard JSON Schema. Otherwise a schema of any value, with a description that says so.
 */
export function jsonSchemaOf(schema: Schema, side: "input" | "output"): JsonSchema {
  const standard = schema["~standard"] as Schema["~standard"] & { readonly jsonSchema?: Converter };
  if (standard.jsonSchema === undefined) return { description: "no JSON Schema" };
  const options =
    standard.vendor === "zod"
      ? { target: "draft-2020-12", libraryOptions: zodOptions }
      : { target: "draft-2020-12" };
  try {
    const { $schema: _, "~standard": __, ...json } = standard.jsonSchema[side](options);
    return json;
  } catch (error) {
    return { description: `no JSON Schema: ${error instanceof Error ? error.message : String(error)}` };
  }
}
