import { readFileSync } from "node:fs";
import type { JsonSchema } from "cinnabar/inspect";
import { nearest } from "cinnabar/options";
import {
  isBytes,
  type JsonReading,
  JsonValueError,
  TooLong,
  valueOfJson as valueBy,
} from "cinnabar-http/json";
import { UsageError } from "./command.ts";
import { CommandError } from "./command-error.ts";

export { jsonOfValue, plain } from "cinnabar-http/json";

/** Files stand for bytes, memory is refused, and a key that the schema does not know is a slip of the pen. */
const reading: JsonReading = {
  part(json, schema, path) {
    for (const kind of ["x-cinnabar-bulk", "x-cinnabar-bulk-stream"])
      if (kind in schema) throw new UsageError(`${path} is memory: give it by --bulk, not in the JSON`);
    if ("x-cinnabar-handle" in schema)
      throw new UsageError(`${path} is a handle of a region, which only a program can pass`);
    const isFile = isBytes(schema) && typeof json === "string" && json.startsWith("@");
    return isFile ? fileOf(json.slice(1), path) : undefined;
  },
  unknownKey(path, key, known) {
    const near = nearest(key, known);
    const hint = near === undefined ? `the keys are ${known.join(", ")}` : `did you mean ${near}?`;
    throw new UsageError(`${path}: unknown key; ${hint}`);
  },
};

/**
 * The value of parsed JSON, by a schema from `readSchema`. Where the schema is silent, the value is the JSON itself.
 *
 * @throws UsageError that names the path: an unknown key, or a text that is not a bigint, date or base64. CommandError
 * for a schema that takes too long to read.
 */
export function valueOfJson(json: unknown, schema: JsonSchema | undefined, path: string): unknown {
  try {
    return valueBy(json, schema, path, reading);
  } catch (error) {
    if (error instanceof JsonValueError) throw new UsageError(error.message);
    if (!(error instanceof TooLong)) throw error;
    throw new CommandError(
      `${path}: the schema that the server reports takes too long to read: give --contract FILE`,
    );
  }
}

/** What a JSON text holds. @throws UsageError that names `what` the text is for. */
export function parsedJson(text: string, what: string): unknown {
  if (text.trim() === "") throw new UsageError(`${what} is empty`);
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new UsageError(`${what} is no JSON: ${(error as Error).message.split("\n")[0]}`);
  }
}

/** @throws UsageError that names what wants the file. */
export function fileOf(file: string, wanted: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new UsageError(`${wanted}: ${code === "ENOENT" ? `there is no file ${file}` : message}`);
  }
}
