import * as zlib from "node:zlib";
import {
  boolean,
  checkedBy,
  type FieldsOf,
  fail,
  integer,
  oneOf,
  required,
  resolveNested,
} from "../base/options/options.ts";
import { type CompressionFormat, formatNumbers } from "../wire/compressed-body.ts";

/** How the long bodies of a call are compressed, in full. */
export interface CompressionOptions {
  /**
   * `deflate` is understood by every engine. `zstd` is faster; it needs Node 22.15 or 23.8. A peer without `zstd` gets
   * `deflate`, and a peer without compression gets bodies as they are.
   */
  readonly format: "deflate" | "zstd";
  /** Bodies that are longer than this are compressed, in bytes, 0 to 2^32 - 1. Default 65,536. */
  readonly minBytes?: number;
  /**
   * Compresses also where the session is sealed. The length of a compressed body tells about its content: set this only
   * where no body mixes secrets with what others can choose. Default false.
   */
  readonly sealed?: boolean;
}

/** The option `compression` of a client or a call: a format, the format with its terms, or `false` for none. */
export type Compression = CompressionOptions["format"] | CompressionOptions | false;

/** The same, complete. */
export type ResolvedCompression = Required<CompressionOptions>;

/** Whether this Node has zstd. */
export const hasZstd = typeof (zlib as { zstdCompress?: unknown }).zstdCompress === "function";

const formats = Object.keys(formatNumbers) as CompressionFormat[];

const formatField = checkedBy((where, name, value): CompressionFormat => {
  const format = oneOf(formats).resolve(where, name, value);
  if (format === "zstd" && !hasZstd)
    throw new RangeError(
      `${where}: ${name} "zstd" needs Node 22.15 or 23.8, this is Node ${process.versions.node}; "deflate" works with each`,
    );
  return format;
});

const fields = {
  format: required(formatField),
  minBytes: integer(0, 0xffff_ffff, 64 * 1024),
  sealed: boolean(false),
} satisfies FieldsOf<CompressionOptions>;

/**
 * The terms of an option. Undefined: no compression.
 *
 * @throws TypeError or RangeError naming the option.
 */
export function resolveCompression(
  where: string,
  name: string,
  value: unknown,
): ResolvedCompression | undefined {
  if (value === false || value === undefined) return undefined;
  if (typeof value === "string")
    return resolveNested(where, name, { format: formatField.resolve(where, name, value) }, fields);
  if (typeof value !== "object" || value === null)
    return fail(TypeError, where, name, '"deflate", "zstd", an object or false', value);
  return resolveNested(where, name, value, fields);
}

export const compressionField = checkedBy(resolveCompression);

/** A request that may be compressed, or whose answer may be: what its session makes of the wish. */
export interface PackedRequest {
  /** The block before its body. */
  readonly block: Uint8Array;
  /** Its body, compressed or not. Undefined where the input must be encoded when it leaves, and after it has left. */
  bytes: Uint8Array | undefined;
}
