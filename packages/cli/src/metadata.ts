import { Metadata } from "cinnabar/standard";
import { UsageError } from "./command.ts";
import { plain } from "./json-values.ts";

/**
 * The metadata of `--metadata NAME=VALUE`. @throws UsageError for an entry without a name, and for an invalid name or
 * value.
 */
export function metadataOf(entries: readonly string[]): Metadata {
  const metadata = new Metadata();
  for (const entry of entries) {
    const at = entry.indexOf("=");
    if (at < 1) throw new UsageError(`--metadata must be NAME=VALUE, it is "${entry}"`);
    try {
      metadata.append(entry.slice(0, at), entry.slice(at + 1));
    } catch (error) {
      throw new UsageError(`--metadata: ${(error as Error).message}`);
    }
  }
  return metadata;
}

/** Metadata as JSON: a name with several values has an array. */
export function metadataJson(metadata: Metadata): Record<string, unknown> {
  const names = new Set([...metadata].map(([name]) => name));
  return Object.fromEntries(
    [...names].map((name) => {
      const values = metadata.getAll(name).map(plain);
      return [name, values.length === 1 ? values[0] : values];
    }),
  );
}
