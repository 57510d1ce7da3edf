import { fields, type Schema } from "cinnabar/contract/standard";
import type { JsonSchema } from "cinnabar/inspect";
import { valueOfJson } from "./values.ts";

/** What `fields` gives to tools. */
interface Described {
  readonly "~standard": {
    readonly jsonSchema: Readonly<
      Record<"input" | "output", () => { readonly properties: { readonly of: JsonSchema } }>
    >;
  };
}

/** A place of a schema where JSON and the value differ. */
const special = /"(?:x-cinnabar-[a-z-]+|contentEncoding)":|"const":"NaN"/;
const memory = /"x-cinnabar-(?:bulk|bulk-stream|handle)":/;

/** Reads the values of one schema from JSON. */
export class JsonForm {
  /** Undefined where JSON is the value itself. */
  readonly #schema: JsonSchema | undefined;
  readonly #path: string;
  /** Whether a value holds memory, or a handle of it, which JSON cannot carry. */
  readonly hasMemory: boolean;

  constructor(schema: Schema, side: "input" | "output", path: string) {
    // `fields` reads schemas of any library, and runs in browsers.
    const described = fields({ of: schema }) as unknown as Described;
    const json = described["~standard"].jsonSchema[side]().properties.of;
    this.#schema = special.test(JSON.stringify(json)) ? json : undefined;
    this.#path = path;
    this.hasMemory = holdsMemory(json);
  }

  /** @throws JsonValueError that names the path; TooLong for a schema that takes too long to read. */
  read(json: unknown): unknown {
    return this.#schema === undefined ? json : valueOfJson(json, this.#schema, this.#path);
  }
}

/** Whether values of a schema hold memory, or a handle of it. */
export function holdsMemory(schema: JsonSchema): boolean {
  return memory.test(JSON.stringify(schema));
}

/** Whether a method declares no value here. The brand is global, so that copies of `cinnabar` recognise it. */
export function isVoid(schema: Schema): boolean {
  return (schema as unknown as Record<symbol, unknown>)[Symbol.for("cinnabar.VoidSchema")] === true;
}
