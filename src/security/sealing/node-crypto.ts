import { createCipheriv, createDecipheriv } from "node:crypto";
import type {
  CryptoAddon,
  LibcryptoReport,
  MessageCipher,
  PieceCipher,
} from "../../fabric/libfabric/crypto-addon.ts";
import { ivBytes, keyBytes, type SuiteName, suiteNames, suites, tagBytes } from "./suites.ts";

const noSuite = -38; // ENOSYS
const invalid = -22; // EINVAL
const forged = -74; // EBADMSG
const mostBytes = 2 ** 31 - 1;

interface NodeAead {
  readonly suite: SuiteName;
  readonly seals: boolean;
  readonly key: Uint8Array;
  readonly iv: Uint8Array;
  /** The number of the last text that was sealed. */
  last: number;
}

/**
 * The addon's authenticated encryption by `node:crypto`, for runtimes without the addon. The results are the same. A
 * message costs several microseconds, because each one makes a cipher. Keys lie in memory of JavaScript until
 * `closeAead`.
 */
export class NodeCrypto implements CryptoAddon {
  readonly #aeads = new Map<number, NodeAead>();
  #handles = 0;

  libcrypto(): LibcryptoReport {
    return { loaded: true, path: "node:crypto", version: `OpenSSL ${process.versions.openssl}`, tried: [] };
  }

  openAead(suite: number, seals: boolean, key: Uint8Array, iv: Uint8Array): number {
    const name = suiteNames.find((each) => suites[each] === suite);
    if (name === undefined || !hasSuite(name)) return noSuite;
    const handle = this.#handles++;
    this.#aeads.set(handle, { suite: name, seals, key: key.slice(), iv: iv.slice(), last: 0 });
    return handle;
  }

  closeAead(handle: number): void {
    this.#aeads.get(handle)?.key.fill(0);
    this.#aeads.delete(handle);
  }

  aeads(): number {
    return this.#aeads.size;
  }

  readonly sealMessage: MessageCipher = (handle, memory, at, aadBytes, bytes, number) => {
    const parts = partsOf(memory, at, aadBytes, bytes);
    return parts === undefined
      ? invalid
      : this.sealPiece(handle, number, parts.aad, parts.text, parts.text, parts.tag);
  };

  readonly openMessage: MessageCipher = (handle, memory, at, aadBytes, bytes, number) => {
    const parts = partsOf(memory, at, aadBytes, bytes);
    return parts === undefined
      ? forged
      : this.openPiece(handle, number, parts.aad, parts.text, parts.text, parts.tag);
  };

  readonly sealPiece: PieceCipher = (handle, number, aad, source, target, tag) => {
    const aead = this.#aeads.get(handle);
    if (!aead?.seals || !isNumber(number) || number <= aead.last || !match(source, target, tag))
      return invalid;
    aead.last = number;
    const cipher = createCipheriv(aead.suite as "aes-256-gcm", aead.key, nonceOf(aead.iv, number), {
      authTagLength: tagBytes,
    });
    cipher.setAAD(aad, { plaintextLength: source.byteLength });
    target.set(cipher.update(source));
    cipher.final();
    tag.set(cipher.getAuthTag());
    return 0;
  };

  readonly openPiece: PieceCipher = (handle, number, aad, source, target, tag) => {
    const aead = this.#aeads.get(handle);
    if (aead === undefined || aead.seals || !isNumber(number) || !match(source, target, tag)) return forged;
    const decipher = createDecipheriv(aead.suite as "aes-256-gcm", aead.key, nonceOf(aead.iv, number), {
      authTagLength: tagBytes,
    });
    decipher.setAAD(aad, { plaintextLength: source.byteLength });
    decipher.setAuthTag(tag);
    try {
      const text = decipher.update(source);
      decipher.final();
      target.set(text);
      return 0;
    } catch {
      target.fill(0);
      return forged;
    }
  };
}

/** Whether the runtime has the cipher. Bun has no ChaCha20-Poly1305. */
function hasSuite(suite: SuiteName): boolean {
  try {
    createCipheriv(suite as "aes-256-gcm", new Uint8Array(keyBytes), new Uint8Array(ivBytes), {
      authTagLength: tagBytes,
    });
    return true;
  } catch {
    return false;
  }
}

/** The iv, its last eight bytes XOR the number. */
function nonceOf(iv: Uint8Array, number: number): Uint8Array {
  const nonce = Buffer.from(iv);
  nonce.writeBigUInt64BE(nonce.readBigUInt64BE(ivBytes - 8) ^ BigInt(number), ivBytes - 8);
  return nonce;
}

const isNumber = (number: number): boolean => Number.isSafeInteger(number) && number >= 0;

/** The parts of a message; undefined where they are not inside of the memory. */
function partsOf(memory: Uint8Array, at: number, aadBytes: number, bytes: number) {
  const end = at + aadBytes + bytes + tagBytes;
  if (![at, aadBytes, bytes].every(isNumber) || end > memory.byteLength) return undefined;
  const textAt = at + aadBytes;
  return {
    aad: memory.subarray(at, textAt),
    text: memory.subarray(textAt, textAt + bytes),
    tag: memory.subarray(textAt + bytes, end),
  };
}

/** Whether both texts have one length, and are the same memory or apart. */
function match(source: Uint8Array, target: Uint8Array, tag: Uint8Array): boolean {
  const bytes = source.byteLength;
  if (target.byteLength !== bytes || tag.byteLength !== tagBytes || bytes > mostBytes) return false;
  const distance = Math.abs(source.byteOffset - target.byteOffset);
  return source.buffer !== target.buffer || distance === 0 || distance >= bytes;
}
