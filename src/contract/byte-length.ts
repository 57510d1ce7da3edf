import { shown } from "../base/options/assert-options.ts";

/** Limits of a length in bytes, both inclusive. */
export interface ByteLengthOptions {
  /** Least length in bytes. Default: 0. */
  readonly minBytes?: number;
  /** Greatest length in bytes. Default: none here; the limits of messages and regions still apply. */
  readonly maxBytes?: number;
}

/** Complete limits. */
export interface ByteLengthLimits {
  readonly minBytes: number;
  readonly maxBytes: number;
}

/**
 * @throws TypeError for an unknown option, a limit that is not an integer of at least 0, or `minBytes` above
 * `maxBytes`.
 */
export function resolveByteLength(where: string, options: ByteLengthOptions): ByteLengthLimits {
  if (typeof options !== "object" || options === null)
    throw new TypeError(`${where}: options must be an object`);
  for (const name of Object.keys(options)) {
    if (name !== "minBytes" && name !== "maxBytes") {
      throw new TypeError(`${where}: unknown option "${name}"; known are minBytes, maxBytes`);
    }
  }
  const minBytes = checkBytes(`${where}: minBytes`, options.minBytes, 0);
  const maxBytes = checkBytes(`${where}: maxBytes`, options.maxBytes, Number.MAX_SAFE_INTEGER);
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

function checkBytes(where: string, value: unknown, fallback: number): number {
  if (value === undefined) return fallback;
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) {
    throw new TypeError(`${where} must be an integer of at least 0, not ${shown(value)}`);
  }
  return value;
}
