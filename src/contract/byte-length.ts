import { type Complete, type FieldsOf, integer, resolveOptions } from "../base/options/options.ts";

/** Limits of a length in bytes, both inclusive. */
export interface ByteLengthOptions {
  /** Least length in bytes. Default: 0. */
  readonly minBytes?: number | undefined;
  /** Greatest length in bytes. Default: none here; the limits of messages and regions still apply. */
  readonly maxBytes?: number | undefined;
}

/** The options with the defaults. */
export type ByteLengthLimits = Complete<ByteLengthOptions>;

const byteLengthFields = {
  minBytes: integer(0, Number.MAX_SAFE_INTEGER, 0),
  maxBytes: integer(0, Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER),
} satisfies FieldsOf<ByteLengthOptions>;

/** @throws TypeError or RangeError that names the option; TypeError for `minBytes` above `maxBytes`. */
export function resolveByteLength(where: string, options: ByteLengthOptions): ByteLengthLimits {
  const { minBytes, maxBytes } = resolveOptions(where, options, byteLengthFields);
  if (minBytes > maxBytes)
    throw new TypeError(`${where}: minBytes ${minBytes} is above maxBytes ${maxBytes}`);
  return { minBytes, maxBytes };
}

/** The fault of a length, as "has 7 bytes; the limit is 4"; `undefined` when it fits. */
export function describeLengthFault(byteLength: number, limits: ByteLengthLimits): string | undefined {
  const length = byteLength === 1 ? "1 byte" : `${byteLength} bytes`;
  if (byteLength < limits.minBytes) return `has ${length}; the least is ${limits.minBytes}`;
  if (byteLength > limits.maxBytes) return `has ${length}; the limit is ${limits.maxBytes}`;
  return undefined;
}
