import { describe, expect, it } from "vitest";
import { entryFault, type MetadataValues, metadataLimits } from "./entry.ts";
import { findMetadata, metadataLength, readMetadata, writeMetadata } from "./metadata-block.ts";

const entries = new Map<string, string | Uint8Array>([
  ["x-tenant", "acme"],
  ["empty", ""],
  ["text", "grüße, 世界\twith a tab"],
  ["x-key-bin", Uint8Array.of(0, 10, 255)],
]);

function block(map: ReadonlyMap<string, MetadataValues> = entries): Buffer {
  const bytes = writeMetadata(map);
  if (!(bytes instanceof Uint8Array)) throw new Error(bytes);
  return Buffer.from(bytes);
}

describe("a block of metadata", () => {
  it("reads as it was written, and is a multiple of eight bytes", () => {
    const bytes = block();
    expect(bytes.byteLength % 8).toBe(0);
    expect(metadataLength(bytes, 0, bytes.byteLength)).toBe(bytes.byteLength);
    expect(readMetadata(bytes)).toEqual(entries);
    for (const [name, value] of entries) expect(findMetadata(bytes, name)).toEqual(value);
    expect(findMetadata(bytes, "x-tenan")).toBeUndefined();
    expect(writeMetadata(new Map())).toBeUndefined();
  });

  it("is found within a frame, with a body behind it", () => {
    const bytes = Buffer.concat([Buffer.alloc(24, 0xee), block(), Buffer.alloc(40, 0xee)]);
    expect(metadataLength(bytes, 24, bytes.byteLength)).toBe(bytes.byteLength - 64);
  });

  it("keeps all values of one name, in their order", () => {
    const one = block(new Map([["a", "1"]]));
    const two = Buffer.alloc(16);
    two.writeUInt16LE(16, 0);
    two.writeUInt16LE(2, 2);
    one.copy(two, 4, 4, 10);
    one.copy(two, 10, 4, 10);
    two[15] = 0x32;
    expect(metadataLength(two, 0, 16)).toBe(16);
    const values = new Map([["a", ["1", "2"]]]);
    expect(readMetadata(two)).toEqual(values);
    expect(findMetadata(two, "a")).toBe("1");
    expect([block(values), writeMetadata({ a: ["1", "2"] })]).toEqual([two, two]);
  });

  it.each([
    ["a header that is cut off", (b: Buffer) => b.subarray(0, 3), "less than its header"],
    ["a length that is odd", (b: Buffer) => set16(b, 0, b.byteLength - 1), "states a length"],
    ["a length of 0", (b: Buffer) => set16(b, 0, 0), "states a length of 0"],
    ["a length beyond its frame", (b: Buffer) => set16(b, 0, b.byteLength + 8), "past the end"],
    ["a length beyond the limit", (b: Buffer) => set16(b, 0, 8200), "exceeds the limit"],
    ["too many entries", (b: Buffer) => set16(b, 2, 65), "more than the limit of 64"],
    ["more entries than there are", (b: Buffer) => set16(b, 2, 60), "metadata"],
    ["fewer entries than there are", (b: Buffer) => set16(b, 2, 1), "behind its last entry"],
    ["a name of no bytes", (b: Buffer) => set8(b, 4, 0), "name of 0 bytes"],
    ["a name that is too long", (b: Buffer) => set8(b, 4, 255), "metadata"],
    ["an unknown form", (b: Buffer) => set8(b, 5, 2), "unknown form 2"],
    ["a value beyond the block", (b: Buffer) => set16(b, 6, 60_000), "cut off"],
    ["an upper-case name", (b: Buffer) => set8(b, 8, 0x58), "not a lower-case HTTP token"],
    ["a colon in a name", (b: Buffer) => set8(b, 8, 0x3a), "not a lower-case HTTP token"],
    ["a line feed in a value", (b: Buffer) => set8(b, 16, 0x0a), "control character"],
    ["a zero in a value", (b: Buffer) => set8(b, 16, 0), "control character"],
  ])("with %s is refused", (_what, change, text) => {
    const bytes = change(block());
    expect(metadataLength(bytes, 0, bytes.byteLength)).toContain(text);
  });

  it("is refused or read, whatever its bytes are", () => {
    const good = block();
    for (let i = 0; i < good.byteLength; i++)
      for (let value = 0; value < 256; value++) {
        const bytes = Buffer.from(good);
        bytes[i] = value;
        const length = metadataLength(bytes, 0, bytes.byteLength);
        if (typeof length === "number") readMetadata(bytes.subarray(0, length));
        else expect(length).toMatch(/^metadata /);
      }
  });

  it("has limits that its writer names", () => {
    const many = new Map(Array.from({ length: 65 }, (_, i) => [`n${i}`, ""]));
    expect(writeMetadata(many)).toContain("more than the 64 entries");
    expect(writeMetadata({ n: new Array(65).fill("") })).toContain("more than the 64 entries");
    expect(writeMetadata({ n: new Array(3).fill("x".repeat(3000)) })).toContain("8192 bytes");
    expect(writeMetadata(new Map([["a", "x".repeat(metadataLimits.maxBytes)]]))).toContain("8192 bytes");
    const most = new Map([["a", "x".repeat(metadataLimits.maxBytes - 9)]]);
    expect(metadataLength(block(most), 0, 8192)).toBe(8192);
  });

  it("takes names as in HTTP/2 and values without control characters", () => {
    for (const name of ["", "Upper", "sp ace", "ä", ":path", "x".repeat(129), "a\n"])
      expect(entryFault(name, "")).toContain("lower-case ASCII");
    for (const name of ["a", "x-tenant-id", "a.b_c", "x".repeat(128)]) expect(entryFault(name, "")).toBe("");
    expect(entryFault("a", "x\r\ny: z")).toContain("control character");
    expect(entryFault("a", 7)).toContain("must be a string or a Uint8Array");
    expect(entryFault("a", ["x", Uint8Array.of(1)])).toBe("");
    expect(entryFault("a", ["x", "y\n"])).toContain("control character");
    expect(entryFault("a", [["x"]])).toContain("must be a string or a Uint8Array, or an array of them");
  });
});

function set8(bytes: Buffer, at: number, value: number): Buffer {
  bytes[at] = value;
  return bytes;
}

function set16(bytes: Buffer, at: number, value: number): Buffer {
  bytes.writeUInt16LE(value, at);
  return bytes;
}
