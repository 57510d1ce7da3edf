import {
  anything,
  callback,
  type Field,
  type FieldsOf,
  required,
  resolveNested,
} from "../base/options/options.ts";

/** One or several PEM texts. */
export type Pem = string | Uint8Array | readonly (string | Uint8Array)[];

/** PEM, or a function that reads it: called when the certificates are needed, and again when they are reloaded. */
export type PemSource = Pem | (() => Pem);

/** The certificate and the trusted authorities of an engine. `Engine.open` and `reloadSecurity` call the functions. */
export interface TlsOptions {
  /** The engine's certificate, followed by intermediate ones. Its usage includes client and server authentication. */
  readonly cert: PemSource;
  /** The private key of the certificate. */
  readonly key: PemSource;
  /** The certificates of the trusted authorities. Only their peers are trusted: the system's list is not used. */
  readonly ca: PemSource;
  /**
   * Revocation lists. When there is one, each authority in a peer's chain must have a list that is in force. Default:
   * no lists, so that no certificate is revoked.
   */
  readonly crl?: PemSource | undefined;
}

/**
 * A key that both sides know. Any holder of the key can be either side, so give each pair of engines a separate key.
 * The key is random (`cinnabar keys psk` makes one). It is no password: a short one can be guessed offline.
 */
export interface PskOptions {
  /** The name that belongs to the key, 1 to 128 characters. An engine that connects needs it. */
  readonly identity?: string | undefined;
  /** 32 to 256 random bytes. Copied. */
  readonly key?: Uint8Array | undefined;
  /**
   * The key of a peer, by the identity that it names; undefined for an unknown identity. Called for each handshake of a
   * connecting peer, so it must be quick. Default: the one key, for its identity.
   */
  readonly lookup?: (identity: string) => Uint8Array | undefined;
}

/** How an engine proves its identity. */
export type Credentials = TlsCredentials | PskCredentials;

export interface TlsCredentials {
  readonly kind: "tls";
  readonly cert: () => readonly Buffer[];
  readonly key: () => readonly Buffer[];
  readonly ca: () => readonly Buffer[];
  readonly crl: (() => readonly Buffer[]) | undefined;
}

const minKeyBytes = 32;
const maxKeyBytes = 256;
const maxIdentityBytes = 128;

const tlsFields = {
  cert: required(pem()),
  key: required(pem()),
  ca: required(pem()),
  crl: pem(),
} satisfies FieldsOf<TlsOptions>;

// Their values are checked by hand, because a message must not show a key.
const pskFields = {
  identity: anything<string>(),
  key: anything<Uint8Array>(),
  lookup: callback<NonNullable<PskOptions["lookup"]>>(),
} satisfies FieldsOf<PskOptions>;

/** @throws TypeError that names the field. */
export function resolveTlsOptions(caller: string, path: string, options: TlsOptions): TlsCredentials {
  return Object.freeze({ kind: "tls", ...resolveNested(caller, path, options, tlsFields) });
}

/** @throws TypeError or RangeError that names the field, and never shows a key. */
export function resolvePskOptions(caller: string, path: string, options: PskOptions): PskCredentials {
  const { identity, key, lookup } = resolveNested(caller, path, options, pskFields);
  const where = `${caller}: ${path}`;
  if ((identity === undefined) !== (key === undefined))
    throw new TypeError(`${where}: identity and key belong together; give both or none`);
  if (identity === undefined && lookup === undefined)
    throw new TypeError(`${where} must have identity and key, or lookup, or both`);
  const own = identity === undefined ? undefined : ownKey(where, identity, key);
  const keyOf =
    lookup ?? ((name: string): Uint8Array | undefined => (name === own?.identity ? own.key : undefined));
  return new PskCredentials(own, (name) => {
    const found: unknown = keyOf(name);
    if (found === undefined) return undefined;
    assertKey(`what ${where}.lookup returns`, found);
    return found;
  });
}

/** The pre-shared keys of an engine. A class keeps them out of printed, inspected and serialized values. */
export class PskCredentials {
  readonly kind = "psk";
  /**
   * The key that belongs to an identity.
   *
   * @throws RangeError for a key that is too short; what the user's function throws.
   */
  readonly lookup: (identity: string) => Uint8Array | undefined;
  readonly #own: { readonly identity: string; readonly key: Uint8Array } | undefined;

  constructor(own: PskCredentials["own"], lookup: PskCredentials["lookup"]) {
    this.#own = own;
    this.lookup = lookup;
  }

  /** The identity and the key of this engine where it connects. Undefined: it only accepts. */
  get own(): { readonly identity: string; readonly key: Uint8Array } | undefined {
    return this.#own;
  }
}

function ownKey(where: string, identity: unknown, key: unknown): NonNullable<PskCredentials["own"]> {
  if (typeof identity !== "string") throw new TypeError(`${where}.identity must be a string`);
  const bytes = Buffer.byteLength(identity);
  if (bytes < 1 || bytes > maxIdentityBytes || identity.includes("\0"))
    throw new RangeError(`${where}.identity must have 1 to ${maxIdentityBytes} bytes, and none that is 0`);
  assertKey(`${where}.key`, key);
  return { identity, key: Uint8Array.from(key) };
}

function assertKey(where: string, key: unknown): asserts key is Uint8Array {
  if (!(key instanceof Uint8Array))
    throw new TypeError(`${where} must be a Uint8Array of ${minKeyBytes} to ${maxKeyBytes} random bytes`);
  if (key.byteLength >= minKeyBytes && key.byteLength <= maxKeyBytes) return;
  throw new RangeError(
    `${where} must have ${minKeyBytes} to ${maxKeyBytes} bytes, it has ${key.byteLength}; a password is no key`,
  );
}

/**
 * PEM or a function that reads it. It resolves to a function that reads and checks it. A message never shows the value,
 * which may be a key.
 */
export function pem(): Field<() => readonly Buffer[]> {
  return {
    resolve(where, name, value) {
      if (typeof value === "function") return () => buffersOf(`what ${where}: ${name} returns`, value());
      const buffers = buffersOf(`${where}: ${name}`, value);
      return () => buffers;
    },
  };
}

function buffersOf(where: string, value: unknown): readonly Buffer[] {
  const parts: readonly unknown[] = Array.isArray(value) ? value : [value];
  if (parts.length === 0 || !parts.every((part) => typeof part === "string" || part instanceof Uint8Array))
    throw new TypeError(`${where} must be PEM as a string or bytes, an array of them, or a function`);
  return parts.map((part) => Buffer.from(part as string));
}
