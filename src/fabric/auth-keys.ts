import type { NativeScheme } from "./libfabric/url.ts";

/**
 * Authorization keys by fabric (fi_domain(3)), as bytes or hexadecimal digits, 1 to 1024 bytes. The provider defines
 * length and meaning: psm2 and psm3 take the 16 bytes of a job's UUID, cxi a service and a VNI. Keys are never printed.
 *
 * @example
 * const engine = await Engine.open({ authKeys: { psm3: "000102030405060708090a0b0c0d0e0f" } });
 */
export type AuthKeyOptions = Readonly<Partial<Record<NativeScheme, Uint8Array | string>>>;

const mostBytes = 1024;
const hexPattern = /^(?:[0-9A-Fa-f]{2})+$/;

/** Holds the keys so that printing, inspecting or serializing shows the fabrics that have one, and no key. */
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
