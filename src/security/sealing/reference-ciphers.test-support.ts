import { createCipheriv } from "node:crypto";

/*
 * Both ciphers once more, from their specifications (NIST SP 800-38D, RFC 8439) with big integers. They are slow, and
 * share no line with OpenSSL's fast paths, where the known faults of implementations were.
 */

export interface Sealed {
  readonly text: Buffer;
  readonly tag: Buffer;
}

type Seal = (key: Uint8Array, nonce: Uint8Array, aad: Uint8Array, text: Uint8Array) => Sealed;

export const referenceSeal: Readonly<Record<"aes-256-gcm" | "chacha20-poly1305", Seal>> = {
  "aes-256-gcm": (key, nonce, aad, text) => {
    const sealed = xorWith(text, (block) => encryptBlock(key, counterBlock(nonce, block + 2)), 16);
    const hashKey = toInt(encryptBlock(key, new Uint8Array(16)));
    let hash = 0n;
    for (const block of blocks(aad, sealed, lengths(aad, sealed, 8n, false)))
      hash = times(hash ^ toInt(block), hashKey);
    return { text: sealed, tag: fromInt(hash ^ toInt(encryptBlock(key, counterBlock(nonce, 1)))) };
  },
  "chacha20-poly1305": (key, nonce, aad, text) => {
    const sealed = xorWith(text, (block) => chachaBlock(key, nonce, block + 1), 64);
    const oneTimeKey = chachaBlock(key, nonce, 0);
    return { text: sealed, tag: poly1305(oneTimeKey, blocks(aad, sealed, lengths(aad, sealed, 1n, true))) };
  },
};

/** The text that is sealed to `sealed`: extreme ciphertext drives the carries of the tag's arithmetic. */
export function textSealedTo(
  name: keyof typeof referenceSeal,
  key: Uint8Array,
  nonce: Uint8Array,
  sealed: Uint8Array,
) {
  return referenceSeal[name](key, nonce, new Uint8Array(0), sealed).text;
}

function xorWith(text: Uint8Array, keystream: (block: number) => Uint8Array, blockBytes: number): Buffer {
  const output = Buffer.from(text);
  for (let at = 0; at < output.length; at += blockBytes) {
    const stream = keystream(at / blockBytes);
    for (let i = at; i < Math.min(at + blockBytes, output.length); i++)
      output[i] = (output[i] as number) ^ (stream[i - at] as number);
  }
  return output;
}

/** Each part in blocks of 16 bytes, its last filled up with zeros. */
function* blocks(...parts: Uint8Array[]): Generator<Buffer> {
  for (const part of parts) {
    for (let at = 0; at < part.length; at += 16) {
      const block = Buffer.alloc(16);
      block.set(part.subarray(at, at + 16));
      yield block;
    }
  }
}

function lengths(aad: Uint8Array, sealed: Uint8Array, unit: bigint, little: boolean): Buffer {
  const block = Buffer.alloc(16);
  const view = new DataView(block.buffer, block.byteOffset);
  view.setBigUint64(0, BigInt(aad.length) * unit, little);
  view.setBigUint64(8, BigInt(sealed.length) * unit, little);
  return block;
}

const toInt = (bytes: Uint8Array): bigint => BigInt(`0x${Buffer.from(bytes).toString("hex")}`);
const fromInt = (value: bigint): Buffer => Buffer.from(value.toString(16).padStart(32, "0"), "hex");
const littleInt = (bytes: Uint8Array): bigint => toInt(Uint8Array.from(bytes).reverse());

function encryptBlock(key: Uint8Array, block: Uint8Array): Buffer {
  return createCipheriv("aes-256-ecb", key, null).setAutoPadding(false).update(block);
}

function counterBlock(nonce: Uint8Array, counter: number): Buffer {
  const block = Buffer.alloc(16);
  block.set(nonce);
  block.writeUInt32BE(counter, 12);
  return block;
}

/** In GF(2^128), bits in GCM's order. */
function times(x: bigint, y: bigint): bigint {
  let product = 0n;
  let shifted = y;
  for (let bit = 127n; bit >= 0n; bit--) {
    if ((x >> bit) & 1n) product ^= shifted;
    shifted = shifted & 1n ? (shifted >> 1n) ^ (0xe1n << 120n) : shifted >> 1n;
  }
  return product;
}

const prime = (1n << 130n) - 5n;
const clamp = 0x0ffffffc0ffffffc0ffffffc0fffffffn;

function poly1305(key: Uint8Array, all: Iterable<Uint8Array>): Buffer {
  const r = littleInt(key.subarray(0, 16)) & clamp;
  let sum = 0n;
  for (const block of all) sum = ((sum + littleInt(block) + (1n << 128n)) * r) % prime;
  return fromInt((sum + littleInt(key.subarray(16, 32))) & ((1n << 128n) - 1n)).reverse();
}

function chachaBlock(key: Uint8Array, nonce: Uint8Array, counter: number): Uint8Array {
  const input = Buffer.concat([Buffer.from("expand 32-byte k"), key, Buffer.alloc(4), nonce]);
  input.writeUInt32LE(counter, 48);
  const initial = Array.from({ length: 16 }, (_, i) => input.readUInt32LE(4 * i));
  const state = Uint32Array.from(initial);
  const mix = (a: number, b: number, c: number, d: number): void => {
    for (const [x, y, z, by] of [
      [a, b, d, 16],
      [c, d, b, 12],
      [a, b, d, 8],
      [c, d, b, 7],
    ] as const) {
      state[x] = (state[x] as number) + (state[y] as number);
      const turned = (state[z] as number) ^ (state[x] as number);
      state[z] = (turned << by) | (turned >>> (32 - by));
    }
  };
  for (let round = 0; round < 10; round++) {
    for (let i = 0; i < 4; i++) mix(i, 4 + i, 8 + i, 12 + i);
    for (let i = 0; i < 4; i++) mix(i, 4 + ((i + 1) % 4), 8 + ((i + 2) % 4), 12 + ((i + 3) % 4));
  }
  const output = Buffer.alloc(64);
  for (let i = 0; i < 16; i++)
    output.writeUInt32LE(((state[i] as number) + (initial[i] as number)) >>> 0, 4 * i);
  return output;
}

/**
 * The one block of text with the tag `tag`. GHASH is linear in it: the hash is (C·H + L)·H, where C is the ciphertext
 * and L the lengths.
 */
export function gcmTextWithTag(key: Uint8Array, nonce: Uint8Array, tag: Uint8Array): Buffer {
  const hashKey = toInt(encryptBlock(key, new Uint8Array(16)));
  const inverse = power(hashKey, (1n << 128n) - 2n);
  const none = new Uint8Array(0);
  const lengthBlock = toInt(lengths(none, new Uint8Array(16), 8n, false));
  const hash = toInt(tag) ^ toInt(encryptBlock(key, counterBlock(nonce, 1)));
  const sealed = times(times(hash, inverse) ^ lengthBlock, inverse);
  return textSealedTo("aes-256-gcm", key, nonce, fromInt(sealed));
}

/**
 * The one block of text that leaves Poly1305's sum, before its last addition, at `sum`. Undefined where no block does:
 * a block has 2^128 values, and the sum some four times as many.
 */
export function chachaTextWithSum(key: Uint8Array, nonce: Uint8Array, sum: bigint): Buffer | undefined {
  const r = littleInt(chachaBlock(key, nonce, 0).subarray(0, 16)) & clamp;
  const inverse = powerModulo(r, prime - 2n);
  const none = new Uint8Array(0);
  const lengthBlock = littleInt(lengths(none, new Uint8Array(16), 1n, true)) + (1n << 128n);
  const block = modulo((modulo(sum * inverse) - lengthBlock) * inverse) - (1n << 128n);
  if (block < 0n || block >= 1n << 128n) return undefined;
  return textSealedTo("chacha20-poly1305", key, nonce, fromInt(block).reverse());
}

/** The modulus of Poly1305. */
export const poly1305Prime = prime;

const modulo = (value: bigint): bigint => ((value % prime) + prime) % prime;

/** In GF(2^128). */
function power(base: bigint, exponent: bigint): bigint {
  let result = 1n << 127n;
  for (const bit of exponent.toString(2)) {
    result = times(result, result);
    if (bit === "1") result = times(result, base);
  }
  return result;
}

function powerModulo(base: bigint, exponent: bigint): bigint {
  let result = 1n;
  for (const bit of exponent.toString(2)) {
    result = modulo(result * result);
    if (bit === "1") result = modulo(result * base);
  }
  return result;
}
