import { randomBytes } from "node:crypto";
import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { hasZstd } from "../../call/compression.ts";
import type { CompressionFormat } from "../../wire/compressed-body.ts";
import { commonFormats, compress, decompress, decompressionBytes, featuresOf } from "./compression.ts";

const text = Buffer.from(
  JSON.stringify(Array.from({ length: 20_000 }, (_, id) => ({ id, name: `n ${id % 97}` }))),
);
const formats: CompressionFormat[] = hasZstd ? ["deflate", "zstd"] : ["deflate"];

const session = (scheme: "tcp" | "shm" | "mem" | "verbs", compression = true) => ({
  port: { scheme },
  services: { compression },
});

describe("the formats of a session", () => {
  it("are what both sides name, and none within a host or where the engine refuses", () => {
    expect(commonFormats(session("tcp"), [1, 2])).toEqual(["deflate"]);
    expect(commonFormats(session("verbs"), [1, 2, 3, 9])).toEqual(
      hasZstd ? ["zstd", "deflate"] : ["deflate"],
    );
    expect(commonFormats(session("tcp"), [1])).toEqual([]);
    for (const scheme of ["shm", "mem"] as const) {
      expect(commonFormats(session(scheme), [1, 2, 3])).toEqual([]);
      expect(featuresOf(session(scheme))).toEqual([1]);
    }
    expect(commonFormats(session("tcp", false), [1, 2, 3])).toEqual([]);
    expect(featuresOf(session("tcp", false))).toEqual([1]);
    expect(featuresOf(session("tcp"))).toEqual(hasZstd ? [1, 3, 2] : [1, 2]);
    expect(featuresOf(session("verbs", false))).toEqual([1, 4]);
  });
});

describe.each(formats)("%s", (format) => {
  const packed = async (bytes: Uint8Array = text) => (await compress(format, bytes)) as Uint8Array;

  it("gives back what it was given, in less bytes", async () => {
    for (const bytes of [text, text.subarray(0, 200), Buffer.alloc(3_000_000, "ab")]) {
      const less = await packed(bytes);
      expect(less.byteLength).toBeLessThan(bytes.byteLength);
      const plain = (await decompress(format, less, bytes.byteLength)) as Buffer;
      expect(Buffer.compare(plain, bytes)).toBe(0);
    }
  });

  it("gives nothing for what does not shrink", async () => {
    for (const bytes of [randomBytes(100_000), Buffer.from("a"), Buffer.alloc(0)])
      expect(await compress(format, bytes)).toBeUndefined();
  });

  it("refuses bytes whose length is not the one that was stated, and holds no more than that", async () => {
    const bomb = await packed(Buffer.alloc(64 * 1024 * 1024));
    expect(bomb.byteLength).toBeLessThan(1_000_000);
    expect(await decompress(format, bomb, 1000)).toBeUndefined();
    const whole = await packed();
    for (const stated of [text.byteLength - 1, text.byteLength + 1, 2 * text.byteLength, 1])
      expect(await decompress(format, whole, stated)).toBeUndefined();
  });

  it("refuses bytes that are cut off, changed, or followed by others", async () => {
    const whole = await packed();
    const changed = Buffer.from(whole);
    changed.fill(0x5a, 10, 400);
    for (const bytes of [
      whole.subarray(0, -1),
      whole.subarray(0, 5),
      whole.subarray(1),
      changed,
      Buffer.concat([whole, Buffer.from("x")]),
      Buffer.concat([whole, whole]),
      Buffer.alloc(0),
      randomBytes(5000),
    ])
      expect(await decompress(format, bytes, text.byteLength)).toBeUndefined();
  });

  it("says how much memory it takes: the body and a window", () => {
    expect(decompressionBytes(format, 1000)).toBeLessThan(1000 + 64 * 1024);
    expect(decompressionBytes(format, 1e9)).toBeLessThanOrEqual(1e9 + 8 * 1024 * 1024);
  });
});

describe("deflate", () => {
  it("is the zlib format of RFC 1950, whichever program wrote it", async () => {
    const plain = (await decompress("deflate", deflateSync(text), text.byteLength)) as Buffer;
    expect(text.equals(plain)).toBe(true);
    expect((await compress("deflate", text))?.[0]).toBe(0x78);
  });
});

describe.runIf(hasZstd)("zstd", () => {
  it("refuses a frame whose window is larger than its body needs", async () => {
    const body = text.subarray(0, 1000);
    /** A frame of RFC 8878 of one block that is not compressed, with a window of 2^(10 + exponent). */
    const frame = (exponent: number) => {
      const header = Uint8Array.of(0x28, 0xb5, 0x2f, 0xfd, 0, exponent << 3);
      const block = (body.byteLength << 3) | 1;
      return Buffer.concat([header, Uint8Array.of(block & 0xff, block >> 8, block >> 16), body]);
    };
    expect((await decompress("zstd", frame(0), body.byteLength))?.equals(body)).toBe(true);
    for (const exponent of [1, 13, 17, 21])
      expect(await decompress("zstd", frame(exponent), body.byteLength), `${exponent}`).toBeUndefined();
  });
});
