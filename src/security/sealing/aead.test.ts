import { createCipheriv, createDecipheriv, createHash } from "node:crypto";
import { afterEach, describe, expect, it } from "vitest";
import type { CryptoAddon } from "../../fabric/libfabric/crypto-addon.ts";
import { addonIfThere } from "../../fabric/libfabric/libfabric.ts";
import { Aead } from "./aead.ts";
import { NodeCrypto } from "./node-crypto.ts";
import { referenceSeal, textSealedTo } from "./reference-ciphers.test-support.ts";
import { suiteNames, suites, tagBytes } from "./suites.ts";

/** Bytes that follow from a seed. */
function bytesOf(seed: string, length: number): Buffer {
  return createHash("shake256", { outputLength: Math.max(1, length) })
    .update(seed)
    .digest()
    .subarray(0, length);
}

const key = bytesOf("key", 32);
const iv = bytesOf("iv", 12);

/** The nonce of a number: the iv, its last eight bytes XOR the number. */
function nonceOf(number: number): Buffer {
  const nonce = Buffer.from(iv);
  nonce.writeBigUInt64BE(nonce.readBigUInt64BE(4) ^ BigInt(number), 4);
  return nonce;
}

const libraries = { "the addon": addonIfThere() as CryptoAddon, "node:crypto": new NodeCrypto() };
const combinations = Object.values(suiteNames).flatMap((suite) =>
  Object.entries(libraries).map(([name, library]) => ({ suite, name, library })),
);

const open: Aead[] = [];
function pairOf(suite: (typeof suiteNames)[number], library: CryptoAddon) {
  const sealing = Aead.create(suite, "seal", key, iv, library);
  const opening = Aead.create(suite, "open", key, iv, library);
  open.push(sealing, opening);
  return { sealing, opening };
}

afterEach(() => {
  for (const aead of open.splice(0)) aead.close();
  for (const library of Object.values(libraries)) expect(library.aeads()).toBe(0);
});

it("a handle of the addon that was closed names nothing, though another has its place", () => {
  const addon = libraries["the addon"];
  const memory = new Uint8Array(64);
  const first = addon.openAead(suites["aes-256-gcm"], true, key, iv);
  expect(addon.sealMessage(first, memory, 0, 0, 16, 1)).toBe(0);
  addon.closeAead(first);
  const second = addon.openAead(suites["aes-256-gcm"], true, key, iv);
  expect(addon.sealMessage(first, memory, 0, 0, 16, 2)).toBe(-9); // EBADF
  addon.closeAead(first);
  expect([addon.aeads(), addon.sealMessage(second, memory, 0, 0, 16, 1)]).toEqual([1, 0]);
  addon.closeAead(second);
});

describe.each(combinations)("$suite by $name", ({ suite, library }) => {
  const pair = () => pairOf(suite, library);

  it("seals as node:crypto does, and opens what that sealed, at lengths from 0 to 16 KiB", () => {
    const { sealing, opening } = pair();
    let number = 0;
    for (let length = 0; length <= 16_384; length += length < 260 ? 1 : 1237) {
      number++;
      const text = bytesOf(`text ${length}`, length);
      const aad = bytesOf(`aad ${length}`, length % 41);
      const cipher = createCipheriv("chacha20-poly1305", key, nonceOf(number), { authTagLength: tagBytes });
      const own = suite === "chacha20-poly1305" ? cipher : createCipheriv(suite, key, nonceOf(number));
      own.setAAD(aad, { plaintextLength: length });
      const expected = Buffer.concat([own.update(text), own.final()]);

      const sealed = new Uint8Array(length);
      const tag = new Uint8Array(tagBytes);
      sealing.sealPiece(number, aad, text, sealed, tag);
      expect(Buffer.compare(sealed, expected)).toBe(0);
      expect(Buffer.from(tag)).toEqual(own.getAuthTag());

      const opened = new Uint8Array(length).fill(1);
      expect(opening.openPiece(number, aad, expected, opened, own.getAuthTag())).toBe(true);
      expect(Buffer.compare(opened, text)).toBe(0);
      expect(opening.openPiece(number, aad, sealed, sealed, tag)).toBe(true);
      expect(Buffer.compare(sealed, text)).toBe(0);
    }
  });

  it("seals in place behind what stays clear, and touches nothing else", () => {
    const { sealing, opening } = pair();
    const memory = new Uint8Array(200).fill(0xaa);
    const text = bytesOf("message", 50);
    memory.set(text, 40);
    sealing.sealMessage(memory, 16, 24, 50, 7);
    const decipher = createDecipheriv("chacha20-poly1305", key, nonceOf(7), { authTagLength: tagBytes });
    const own = suite === "chacha20-poly1305" ? decipher : createDecipheriv(suite, key, nonceOf(7));
    own.setAAD(new Uint8Array(24).fill(0xaa), { plaintextLength: 50 });
    own.setAuthTag(memory.subarray(90, 106));
    expect(Buffer.concat([own.update(memory.subarray(40, 90)), own.final()])).toEqual(text);
    expect([...memory.subarray(0, 40), ...memory.subarray(106)].every((byte) => byte === 0xaa)).toBe(true);

    expect(opening.openMessage(memory, 16, 24, 50, 8)).toBe(false);
    expect([...memory.subarray(40, 90)].every((byte) => byte === 0)).toBe(true);
  });

  it("gives the answers of an implementation by big integers, for extreme ciphertext too", () => {
    const { sealing } = pair();
    const patterns = [
      ...[0x00, 0xff, 0x80, 0x01, 0x7f, 0xfe].map((byte) => (i: number) => (i < 0 ? 0 : byte)),
      // Limbs of 26, 32, 44 and 64 bits of which each is full, or one short of it.
      ...[4, 8, 16].map((period) => (i: number) => (i % period === 0 ? 0xfb : 0xff)),
      (i: number) => (i % 16 === 15 ? 0x03 : 0xff),
    ];
    let number = 0;
    for (const pattern of patterns) {
      for (const length of [0, 1, 15, 16, 17, 32, 63, 64, 65, 129, 256]) {
        number++;
        const nonce = nonceOf(number);
        const wanted = Uint8Array.from({ length }, (_, i) => pattern(i));
        const text = textSealedTo(suite, key, nonce, wanted);
        const aad = wanted.subarray(0, length % 33);
        const sealed = new Uint8Array(length);
        const tag = new Uint8Array(tagBytes);
        sealing.sealPiece(number, aad, text, sealed, tag);
        const expected = referenceSeal[suite](key, nonce, aad, text);
        expect(Buffer.from(sealed)).toEqual(Buffer.from(wanted));
        expect(Buffer.from(tag)).toEqual(expected.tag);
      }
    }
  });

  it("refuses tags that come close", () => {
    const { sealing, opening } = pair();
    const text = bytesOf("text", 35);
    const aad = bytesOf("aad", 9);
    const sealed = new Uint8Array(35);
    const tag = new Uint8Array(tagBytes);
    sealing.sealPiece(1, aad, text, sealed, tag);
    const opens = (other: Uint8Array) => {
      const target = new Uint8Array(35).fill(9);
      const opened = opening.openPiece(1, aad, sealed, target, other);
      expect([...target].every((byte) => byte === 0)).toBe(!opened);
      return opened;
    };
    for (let bit = 0; bit < 8 * tagBytes; bit++) {
      const other = Uint8Array.from(tag);
      other[bit >> 3] = (other[bit >> 3] as number) ^ (1 << (bit & 7));
      expect(opens(other)).toBe(false);
    }
    const all = (change: (byte: number) => number) => opens(tag.map(change));
    expect([
      all(() => 0),
      all(() => 0xff),
      all((b) => b ^ 0xff),
      all((b) => b ^ 0x80),
      all((b) => b ^ 1),
    ]).toEqual([false, false, false, false, false]);
    expect([opens(tag.subarray(0, 15)), opens(Uint8Array.of(...tag, 0)), opens(new Uint8Array(0))]).toEqual([
      false,
      false,
      false,
    ]);
    expect(opens(tag)).toBe(true);
  });

  it("takes memory that is the same or apart, and none that overlaps", () => {
    const { sealing, opening } = pair();
    const memory = new Uint8Array(100);
    const tag = new Uint8Array(tagBytes);
    const part = (at: number) => memory.subarray(at, at + 40);
    sealing.sealPiece(1, tag, part(0), part(0), tag);
    sealing.sealPiece(2, part(80).subarray(0, 3), part(0), part(40), tag);
    expect(() => sealing.sealPiece(3, new Uint8Array(0), part(0), part(39), tag)).toThrow(RangeError);
    expect(() => sealing.sealPiece(3, new Uint8Array(0), part(0), part(1), tag)).toThrow(RangeError);
    expect(() => sealing.sealPiece(3, new Uint8Array(0), part(0), memory.subarray(40, 79), tag)).toThrow(
      RangeError,
    );
    expect(opening.openPiece(2, part(80).subarray(0, 3), part(40), part(0), tag)).toBe(true);
    expect(opening.openPiece(2, part(80).subarray(0, 3), part(40), part(41), tag)).toBe(false);
  });

  it("refuses numbers that were sealed before, and places outside of the memory", () => {
    const { sealing, opening } = pair();
    const memory = new Uint8Array(64);
    sealing.sealMessage(memory, 0, 24, 24, 5);
    for (const number of [5, 4, 0, -1, 5.5, 2 ** 53, Number.NaN])
      expect(() => sealing.sealMessage(memory, 0, 24, 24, number)).toThrow(`number ${number}`);
    for (const [at, aadBytes, bytes] of [
      [1, 24, 24],
      [0, 25, 24],
      [0, 24, 25],
      [65, 0, 0],
      [-1, 0, 0],
      [0, 2 ** 40, 0],
      [0, 0, 2 ** 40],
    ] as const) {
      expect(() => sealing.sealMessage(memory, at, aadBytes, bytes, 6)).toThrow(RangeError);
      expect(opening.openMessage(memory, at, aadBytes, bytes, 6)).toBe(false);
    }
    sealing.sealMessage(memory, 0, 24, 24, 6);
    expect(opening.openMessage(memory, 0, 24, 24, 6)).toBe(true);
  });

  it("does nothing more once it is closed, also when its handle has another owner", () => {
    const { sealing, opening } = pair();
    const memory = new Uint8Array(64);
    sealing.sealMessage(memory, 0, 24, 24, 1);
    sealing.close();
    opening.close();
    const others = pair();
    expect(() => sealing.sealMessage(memory, 0, 24, 24, 2)).toThrow("the keys of this session are gone");
    expect(opening.openMessage(memory, 0, 24, 24, 1)).toBe(false);
    sealing.close();
    others.sealing.sealMessage(memory, 0, 24, 24, 1);
    expect(others.opening.openMessage(memory, 0, 24, 24, 1)).toBe(true);
  });
});

describe("Aead", () => {
  it("needs a key and an iv of their lengths", () => {
    expect(() => Aead.create("aes-256-gcm", "seal", key.subarray(1), iv)).toThrow("a key of 32 bytes");
    expect(() => Aead.create("aes-256-gcm", "seal", key, key)).toThrow("an iv of 12");
  });

  it("runs on the OpenSSL of this node", () => {
    const report = addonIfThere()?.libcrypto();
    expect(report?.version).toContain(process.versions.openssl.replace(/\+.*/, ""));
    expect(report?.tried.at(-1)?.path).toBe(report?.path);
  });
});
