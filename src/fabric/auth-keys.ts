import type { NativeScheme } from "./url.ts";

/**
 * An authorization key for each fabric that takes one (fi_domain(3)): bytes, or hexadecimal digits. Which length and meaning it has says the provider:
 * psm2 and psm3 take the 16 bytes of a job's UUID, cxi a service and a VNI.
 */
export type AuthKeyOptions = Readonly<Partial<Record<NativeScheme, Uint8Array | string>>>;

const mostBytes = 1024;
const hexPattern = /^(?:[0-9A-Fa-f]{2})+$/;

/** Keys that nobody sees: printing, inspecting or serializing this shows for which fabrics there are keys, and no key. */
export class AuthKeys {
  readonly #keys = new Map<string, Uint8Array>();

  /** @throws TypeError or RangeError that names the fabric, never the key. The bytes are copied. */
  constructor(where: string, options: AuthKeyOptions) {
    for (const [scheme, key] of Object.entries(options))
      if (key !== undefined) this.#keys.set(scheme, bytesOf(`${where}.${scheme}`, key));
  }

  of(scheme: NativeScheme): Uint8Array | undefined {
    return this.#keys.get(scheme);
  }

  /** The fabrics that have keys. */
  get schemes(): string[] {
    return [...this.#keys.keys()];
  }
}

function bytesOf(where: string, key: Uint8Array | string): Uint8Array {
  let bytes: Uint8Array;
  if (typeof key === "string") {
    if (!hexPattern.test(key)) throw new TypeError(`${where} must be bytes or pairs of hexadecimal digits`);
    bytes = new Uint8Array(Buffer.from(key, "hex"));
  } else if (key instanceof Uint8Array) {
    bytes = Uint8Array.from(key);
  } else {
    throw new TypeError(`${where} must be bytes or pairs of hexadecimal digits`);
  }
  if (bytes.byteLength === 0 || bytes.byteLength > mostBytes)
    throw new RangeError(`${where} must have 1 to ${mostBytes} bytes, it has ${bytes.byteLength}`);
  return bytes;
}
