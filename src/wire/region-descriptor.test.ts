import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  maxRegionSegments,
  readRegionDescriptor,
  regionHeaderBytes,
  regionSegmentBytes,
  writeRegionDescriptor,
} from "./region-descriptor.ts";

const one = {
  access: 3,
  bytes: 6_000_000_000,
  segments: [{ key: 0x0102030405060708n, address: 0xff00_0000_0000_0000n, bytes: 6_000_000_000 }],
};
const two = {
  access: 1,
  bytes: 300,
  segments: [
    { key: 1n, address: 4096n, bytes: 100 },
    { key: 2n, address: 0n, bytes: 200 },
  ],
};

function changed(change: (view: DataView) => void, descriptor = one as typeof two): string {
  const bytes = writeRegionDescriptor(descriptor);
  change(new DataView(bytes.buffer));
  const read = readRegionDescriptor(bytes);
  return typeof read === "string" ? read : "";
}

describe("region descriptor", () => {
  it("has a header of 16 bytes and 24 for each segment, little-endian", () => {
    const bytes = writeRegionDescriptor(one);
    expect(Buffer.from(bytes).toString("hex")).toBe(
      "01030000" +
        "01000000" +
        "00bca06501000000" +
        "0807060504030201" +
        "00000000000000ff" +
        "00bca06501000000",
    );
    expect(writeRegionDescriptor(two).byteLength).toBe(regionHeaderBytes + 2 * regionSegmentBytes);
  });

  it("comes back as it was written, wherever it lies", () => {
    for (const descriptor of [one, two, { access: 2, bytes: 0, segments: [] }]) {
      const written = writeRegionDescriptor(descriptor);
      const inside = new Uint8Array(written.byteLength + 8).fill(0xff);
      inside.set(written, 5);
      expect(readRegionDescriptor(inside.subarray(5, 5 + written.byteLength))).toEqual(descriptor);
    }
  });

  it("comes back for any segments", () => {
    const segment = fc.record({
      key: fc.bigInt(0n, 2n ** 64n - 1n),
      address: fc.bigInt(0n, 2n ** 63n),
      bytes: fc.integer({ min: 1, max: 2 ** 40 }),
    });
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 3 }),
        fc.array(segment, { maxLength: 50 }),
        (access, segments) => {
          const bytes = segments.reduce((sum, each) => sum + each.bytes, 0);
          const descriptor = { access, bytes, segments };
          expect(readRegionDescriptor(writeRegionDescriptor(descriptor))).toEqual(descriptor);
        },
      ),
    );
  });

  it("is a descriptor or a sentence whatever its bytes are, and never an exception", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 100 }), (bytes) => {
        const read = readRegionDescriptor(bytes);
        if (typeof read === "string") expect(read).toContain("region descriptor");
        else expect(writeRegionDescriptor(read)).toEqual(bytes);
      }),
    );
    const good = writeRegionDescriptor(two);
    for (let at = 0; at < good.byteLength; at++) {
      for (const value of [0, 1, 0x7f, 0x80, 0xff]) {
        const bytes = Uint8Array.from(good);
        bytes[at] = value;
        const read = readRegionDescriptor(bytes);
        if (typeof read !== "string") expect(writeRegionDescriptor(read)).toEqual(bytes);
      }
    }
  });

  it.each([0, 4, 255])("is refused for access %i", (access) => {
    expect(changed((view) => view.setUint8(1, access))).toContain(`access ${access}`);
  });

  it.each([0, 2, 255])("is refused for version %i", (version) => {
    expect(changed((view) => view.setUint8(0, version))).toContain(`version ${version}`);
  });

  it.each([0, 15, 17, 39, 41, regionHeaderBytes + (maxRegionSegments + 1) * regionSegmentBytes])(
    "is refused with %i bytes",
    (bytes) => {
      expect(readRegionDescriptor(new Uint8Array(bytes))).toBe(`region descriptor has ${bytes} bytes`);
    },
  );

  it.each([2, 3])("is refused when reserved byte %i is set", (at) => {
    expect(changed((view) => view.setUint8(at, 2))).toContain("unknown bytes");
  });

  it("is refused when it states other segments than it has", () => {
    expect(changed((view) => view.setUint32(4, 2, true))).toContain("states 2 segments and has 1");
    expect(changed((view) => view.setUint32(4, 0xffff_ffff, true))).toContain("segments and has 1");
  });

  it("is refused when its total is no safe integer, or not the sum of its segments", () => {
    expect(changed((view) => view.setBigUint64(8, 2n ** 53n, true))).toContain("length 9007199254740992");
    for (const total of [0n, 299n, 301n]) {
      expect(changed((view) => view.setBigUint64(8, total, true), two)).toContain(`states ${total} bytes`);
    }
    // Together they are 2^64 + 300.
    expect(changed((view) => view.setBigUint64(16 + 16, 2n ** 64n - 4097n, true), two)).toContain(
      "states 300",
    );
  });

  it("is refused with an empty segment", () => {
    expect(changed((view) => view.setBigUint64(16 + 16, 0n, true), two)).toContain("empty segment");
  });

  it("is refused when a segment runs past the end of memory, and taken up to it", () => {
    const last = 0xffff_ffff_ffff_ffffn - BigInt(one.bytes);
    expect(changed((view) => view.setBigUint64(24, last, true))).toBe("");
    expect(changed((view) => view.setBigUint64(24, last + 1n, true))).toContain("past the end of memory");
  });
});
