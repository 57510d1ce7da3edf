import { createHmac, randomBytes } from "node:crypto";
import { crc32 } from "node:zlib";
import { checkedBy } from "cinnabar/options";

/** The hash functions of DH-HMAC-CHAP. Their identifiers on the wire are their places, from 1 on. */
export const hashNames = ["sha256", "sha384", "sha512"] as const;

/** A hash function of DH-HMAC-CHAP. */
export type NvmeHash = (typeof hashNames)[number];

const form = "DHHC-1";

/** The lengths of their digests. */
export const digestBytes: Readonly<Record<NvmeHash, number>> = { sha256: 32, sha384: 48, sha512: 64 };

/** A secret that was read. */
export interface Secret {
  readonly key: Buffer;
  /** The hash function that binds the key to one name. Undefined: the key is used as it is. */
  readonly hash: NvmeHash | undefined;
}

/**
 * Makes a secret for a host or for a subsystem, in the form of NVMe, `DHHC-1:…`: random bytes, as many as the hash
 * function gives, and a checksum. Linux takes the same form.
 *
 * @param hash the function that makes the key from the secret and the name. Default: `sha256`.
 */
export function makeSecret(hash: NvmeHash = "sha256"): string {
  if (!hashNames.includes(hash)) throw new TypeError(`makeSecret: there is no hash ${hash}`);
  return keyText(form, hashNames.indexOf(hash) + 1, randomBytes(digestBytes[hash]));
}

/** A key in a form of NVMe: the number of a hash function, the key and its checksum. */
export function keyText(name: string, hash: number, key: Buffer): string {
  const checksum = Buffer.alloc(4);
  checksum.writeUInt32LE(crc32(key));
  return `${name}:0${hash}:${Buffer.concat([key, checksum]).toString("base64")}:`;
}

/** Undefined for a text of another form, or for a damaged one. */
export function parseKeyText(name: string, text: string): { key: Buffer; hash: number } | undefined {
  const [, given, hash, base64 = ""] = /^([\w-]+):0(\d):([A-Za-z0-9+/]+=*):$/.exec(text) ?? [];
  const bytes = Buffer.from(base64, "base64");
  if (given !== name || bytes.length <= 4) return undefined;
  const key = bytes.subarray(0, -4);
  return bytes.readUInt32LE(key.length) === crc32(key) ? { key, hash: Number(hash) } : undefined;
}

/** Undefined for text that is not a secret, or for a damaged secret. */
export function parseSecret(text: string): Secret | undefined {
  const parsed = parseKeyText(form, text);
  if (parsed === undefined || parsed.hash > hashNames.length) return undefined;
  if (!Object.values(digestBytes).includes(parsed.key.length)) return undefined;
  return { key: parsed.key, hash: hashNames[parsed.hash - 1] };
}

/** A secret in its text form. The error does not show the given value. */
export const secretField = checkedBy((where, name, value): Secret => {
  const secret = typeof value === "string" ? parseSecret(value) : undefined;
  if (secret !== undefined) return secret;
  throw new TypeError(`${where}: ${name} must be a secret as makeSecret gives it, DHHC-1:…, and whole`);
});

/** The key of a secret for a named host or subsystem. */
export function keyFor({ key, hash }: Secret, nqn: string): Buffer {
  return hash === undefined
    ? key
    : createHmac(hash, key).update(nqn, "utf8").update("NVMe-over-Fabrics").digest();
}
