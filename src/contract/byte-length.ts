/** Limits on a length, in bytes, both ends included. */
export interface ByteLengthOptions {
  /** The least that fits. Default: 0. */
  readonly minBytes?: number;
  /** The most that fits. Default: no limit here; message and region limits hold anyway. */
  readonly maxBytes?: number;
}

/** Resolved limits. */
export interface ByteLengthLimits {
  readonly minBytes: number;
  readonly maxBytes: number;
}

/** @throws TypeError for an unknown option, or limits that are no safe integers from 0 on with min at most max. */
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

/** What is wrong with a length, as "has 7 bytes, the most is 4"; `undefined` when it fits. */
export function describeLengthFault(byteLength: number, limits: ByteLengthLimits): string | undefined {
  const length = byteLength === 1 ? "1 byte" : `${byteLength} bytes`;
  if (byteLength < limits.minBytes) return `has ${length}, the least is ${limits.minBytes}`;
  if (byteLength > limits.maxBytes) return `has ${length}, the most is ${limits.maxBytes}`;
  return undefined;
}

function checkBytes(where: string, value: unknown, fallback: number): number {
  if (value === undefined) return fallback;
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) {
    throw new TypeError(`${where} must be an integer from 0 on, it is ${String(value)}`);
  }
  return value;
}
