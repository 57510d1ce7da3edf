import { hkdfSync } from "node:crypto";
import { afterEach, describe, expect, it } from "vitest";
import { addonIfThere } from "../../fabric/libfabric/libfabric.ts";
import { Aead } from "./aead.ts";
import { expand } from "./key-schedule.ts";
import {
  chachaTextWithSum,
  gcmTextWithTag,
  poly1305Prime,
  referenceSeal,
} from "./reference-ciphers.test-support.ts";
import { type SuiteName, tagBytes } from "./suites.ts";

const hex = (text: string) => Buffer.from(text.replaceAll(/\s/g, ""), "hex");
const none = new Uint8Array(0);

const open: Aead[] = [];
afterEach(() => {
  for (const aead of open.splice(0)) aead.close();
  expect(addonIfThere()?.aeads()).toBe(0);
});

/** Ciphers that use this nonce for number 1. */
function pair(suite: SuiteName, key: Uint8Array, nonce: Uint8Array) {
  const iv = Uint8Array.from(nonce);
  iv[11] = (iv[11] as number) ^ 1;
  const sealing = Aead.create(suite, "seal", key, iv);
  const opening = Aead.create(suite, "open", key, iv);
  open.push(sealing, opening);
  return { sealing, opening };
}

interface Vector {
  readonly key: string;
  readonly nonce: string;
  readonly aad?: string;
  readonly text: string;
  readonly sealed: string;
  readonly tag: string;
}

const gcmKey = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";
const gcmText = `d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72
  1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39`;
const gcmSealed = `522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa
  8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662`;

/** The test cases of GCM's authors with 256 bits of key and 96 of nonce; RFC 8439, section 2.8.2. */
const vectors: Readonly<Record<string, readonly [SuiteName, Vector]>> = {
  "GCM 13": [
    "aes-256-gcm",
    {
      key: "00".repeat(32),
      nonce: "00".repeat(12),
      text: "",
      sealed: "",
      tag: "530f8afbc74536b9a963b4f1c4cb738b",
    },
  ],
  "GCM 14": [
    "aes-256-gcm",
    {
      key: "00".repeat(32),
      nonce: "00".repeat(12),
      text: "00".repeat(16),
      sealed: "cea7403d4d606b6e074ec5d3baf39d18",
      tag: "d0d1c8a799996bf0265b98b5d48ab919",
    },
  ],
  "GCM 15": [
    "aes-256-gcm",
    {
      key: gcmKey,
      nonce: "cafebabefacedbaddecaf888",
      text: `${gcmText}1aafd255`,
      sealed: `${gcmSealed}898015ad`,
      tag: "b094dac5d93471bdec1a502270e3cc6c",
    },
  ],
  "GCM 16": [
    "aes-256-gcm",
    {
      key: gcmKey,
      nonce: "cafebabefacedbaddecaf888",
      aad: "feedfacedeadbeeffeedfacedeadbeefabaddad2",
      text: gcmText,
      sealed: gcmSealed,
      tag: "76fc6ece0f4e1768cddf8853bb2d551b",
    },
  ],
  "RFC 8439": [
    "chacha20-poly1305",
    {
      key: "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
      nonce: "070000004041424344454647",
      aad: "50515253c0c1c2c3c4c5c6c7",
      text: Buffer.from(
        "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.",
      ).toString("hex"),
      sealed: `d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6
        3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36
        92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc
        3ff4def08e4b7a9de576d26586cec64b6116`,
      tag: "1ae10b594f09e26a7e902ecbd0600691",
    },
  ],
};

describe("the answers of the specifications", () => {
  it.each(Object.entries(vectors))("are given: %s", (_, [suite, vector]) => {
    const { sealing, opening } = pair(suite, hex(vector.key), hex(vector.nonce));
    const [text, aad, tag] = [hex(vector.text), hex(vector.aad ?? ""), new Uint8Array(tagBytes)];
    const sealed = new Uint8Array(text.byteLength);
    sealing.sealPiece(1, aad, text, sealed, tag);
    expect(Buffer.from(sealed)).toEqual(hex(vector.sealed));
    expect(Buffer.from(tag)).toEqual(hex(vector.tag));
    const opened = new Uint8Array(text.byteLength);
    expect(opening.openPiece(1, aad, sealed, opened, tag)).toBe(true);
    expect(Buffer.from(opened)).toEqual(text);
  });

  // The inputs of RFC 5869's first example, and the key that it extracts from them. Its info is no text; ours is text.
  it("are those of HKDF, also over several blocks of the hash", () => {
    const prk = hex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
    const [ikm, salt] = [hex("0b".repeat(22)), hex("000102030405060708090a0b0c")];
    for (const bytes of [1, 32, 33, 76, 255])
      for (const info of ["", "cinnabar 1 connector", "i".repeat(80)])
        expect(Buffer.from(expand(prk, info, bytes))).toEqual(
          Buffer.from(hkdfSync("sha256", ikm, salt, info, bytes)),
        );
  });
});

/** Seals and opens one block, which must agree with the reference. */
function agreedTag(suite: SuiteName, key: Uint8Array, nonce: Uint8Array, text: Uint8Array): Buffer {
  const { sealing, opening } = pair(suite, key, nonce);
  const sealed = new Uint8Array(text.byteLength);
  const tag = new Uint8Array(tagBytes);
  sealing.sealPiece(1, none, text, sealed, tag);
  const expected = referenceSeal[suite](key, nonce, none, text);
  expect(Buffer.from(tag)).toEqual(expected.tag);
  expect(opening.openPiece(1, none, sealed, new Uint8Array(text.byteLength), tag)).toBe(true);
  // The nearest other tags.
  for (const bit of [0, 7, 63, 64, 127]) {
    const other = Uint8Array.from(tag);
    other[bit >> 3] = (other[bit >> 3] as number) ^ (1 << (bit & 7));
    expect(opening.openPiece(1, none, sealed, new Uint8Array(text.byteLength), other)).toBe(false);
  }
  return Buffer.from(tag);
}

describe("extreme tags", () => {
  const key = hex("92".repeat(32));
  const nonceOf = (i: number) => Buffer.concat([Buffer.alloc(11, 0x3c), Uint8Array.of(i)]);

  it.each([
    "00".repeat(16),
    "ff".repeat(16),
    `${"00".repeat(15)}01`,
    `80${"00".repeat(15)}`,
    "00000000ffffffff00000000ffffffff",
    "7fffffffffffffff8000000000000000",
  ])("of AES-256-GCM are tags like others: %s", (tag) => {
    const text = gcmTextWithTag(key, nonceOf(1), hex(tag));
    expect(agreedTag("aes-256-gcm", key, nonceOf(1), text)).toEqual(hex(tag));
  });

  // Fast implementations had wrong carries for sums next to the prime and to the limits of words.
  it("of Poly1305 are those of sums next to its prime and to the limits of words", () => {
    const words = [26n, 32n, 44n, 52n, 64n, 88n, 96n, 104n, 128n, 129n].map((bits) => 1n << bits);
    const sums = [0n, poly1305Prime, ...words].flatMap((at) =>
      Array.from({ length: 5 }, (_, i) => (at + BigInt(i - 2) + poly1305Prime) % poly1305Prime),
    );
    let tried = 0;
    for (const sum of new Set(sums)) {
      // About every fourth key has a text for it.
      for (let i = 0; i < 64; i++) {
        const text = chachaTextWithSum(key, nonceOf(i), sum);
        if (text === undefined) continue;
        agreedTag("chacha20-poly1305", key, nonceOf(i), text);
        tried++;
        break;
      }
    }
    expect(tried).toBe(new Set(sums).size);
  });
});
