import type { JsonSchema } from "cinnabar/inspect";
import type { Engine, Region } from "cinnabar/standard";
import { schemaIn } from "cinnabar-http/json";
import { UsageError } from "./command.ts";
import { fileOf } from "./json-values.ts";
import { writeWhole } from "./output-file.ts";
import { bytes } from "./quantities.ts";

/** The memory of one `--bulk`. */
export interface BulkArgument {
  /** Where it stands in the input, as in `options.into`. */
  readonly path: string;
  readonly memory: Uint8Array;
  /** The file that the memory is written to when the call has succeeded. */
  readonly outFile: string | undefined;
}

type Access = "read" | "write" | "read_write";

/**
 * Reads `into=16MiB:out.bin` (memory that the server writes), `from=@file` (memory that it reads) and
 * `pixels=@in.bin:out.bin` (memory that it changes).
 *
 * @throws UsageError for another form, and for a file that cannot be read or written.
 */
export function bulkArgument(text: string): BulkArgument {
  const [, path = "", inFile, size, outFile] = /^([^=]+)=(?:@([^:]+)|([^@:]+))(?::(.+))?$/.exec(text) ?? [];
  if (path === "" || (inFile === undefined && (size === undefined || outFile === undefined)))
    throw new UsageError(`--bulk must be FIELD=@FILE or FIELD=SIZE:FILE, it is "${text}"`);
  const memory =
    inFile === undefined ? Buffer.alloc(bytes("--bulk", size ?? "")) : fileOf(inFile, `--bulk ${path}`);
  return { path, memory, outFile };
}

/**
 * Exposes the memory as the schema of the input asks for, and returns the regions by their paths.
 *
 * @throws UsageError for a path that is not memory in the schema, and for required memory that is missing.
 */
export function exposeBulk(
  engine: Engine,
  given: readonly BulkArgument[],
  schema: JsonSchema | undefined,
): ReadonlyMap<string, Region> {
  const wanted = bulkFields(schema ?? {}, "", 0);
  for (const [path] of wanted)
    if (!given.some((argument) => argument.path === path))
      throw new UsageError(`input.${path} is memory: give it by --bulk ${path}=@FILE or ${path}=SIZE:FILE`);
  return new Map(
    given.map(({ path, memory, outFile }) => {
      const access = wanted.get(path);
      if (access === undefined && wanted.size > 0)
        throw new UsageError(
          `--bulk: the input has memory at ${[...wanted.keys()].join(", ")}, not at ${path}`,
        );
      if (access !== undefined && access !== "read" && outFile === undefined)
        throw new UsageError(`--bulk: the server writes ${path}: give SIZE:FILE, or @FILE:FILE`);
      const own: Access = outFile === undefined ? "read" : "read_write";
      return [path, engine.expose(memory, { access: access === undefined || access !== own ? own : access })];
    }),
  );
}

/** The paths of the required and optional memory in a schema of the input, with the access that the server needs. */
function bulkFields(schema: JsonSchema, path: string, depth: number): Map<string, Access> {
  const found = new Map<string, Access>();
  const bulk = schema["x-cinnabar-bulk"] as { readonly access?: Access } | undefined;
  if (bulk !== undefined) return found.set(path, bulk.access ?? "read_write");
  if (depth > 8) return found;
  for (const [name, part] of Object.entries(schemaIn(schema.properties)))
    for (const [inside, access] of bulkFields(
      schemaIn(part),
      path === "" ? name : `${path}.${name}`,
      depth + 1,
    ))
      found.set(inside, access);
  return found;
}

/** Puts values into an input at their paths, making the objects on the way. Without any it is the input itself. */
export function placed(input: unknown, values: ReadonlyMap<string, unknown>): unknown {
  let whole = input;
  for (const [path, value] of values) whole = withValueAt(whole, path.split("."), value);
  return whole;
}

function withValueAt(input: unknown, [step = "", ...rest]: readonly string[], value: unknown): unknown {
  const object = typeof input === "object" && input !== null ? (input as Record<string, unknown>) : {};
  return { ...object, [step]: rest.length === 0 ? value : withValueAt(object[step], rest, value) };
}

/** Writes the memory that the server has written. Each file appears whole, or not at all. */
export function writeBulk(given: readonly BulkArgument[]): void {
  for (const { memory, outFile } of given) if (outFile !== undefined) writeWhole("--bulk", outFile, memory);
}
