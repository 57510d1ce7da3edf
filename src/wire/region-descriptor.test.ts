import { describe, expect, it } from "vitest";
import { readRegionDescriptor, regionDescriptorBytes, writeRegionDescriptor } from "./region-descriptor.ts";

const descriptor = {
  key: 0x0102030405060708n,
  address: 0xff00_0000_0000_0000n,
  bytes: 6_000_000_000,
  access: 3,
};

function changed(change: (view: DataView) => void): Uint8Array {
  const bytes = writeRegionDescriptor(descriptor);
  change(new DataView(bytes.buffer));
  return bytes;
}

describe("region descriptor", () => {
  it("has 32 bytes, little-endian, the last seven of them zero", () => {
    const bytes = writeRegionDescriptor(descriptor);
    expect(Buffer.from(bytes).toString("hex")).toBe(
      "0807060504030201" + "00000000000000ff" + "00bca06501000000" + "0300000000000000",
    );
    expect(bytes.byteLength).toBe(regionDescriptorBytes);
  });

  it("comes back as it was written, wherever it lies", () => {
    const inside = new Uint8Array(40);
    inside.set(writeRegionDescriptor(descriptor), 5);
    expect(readRegionDescriptor(inside.subarray(5, 37))).toEqual(descriptor);
  });

  it.each([1, 2, 3])("knows access %i", (access) => {
    expect(readRegionDescriptor(changed((view) => view.setUint8(24, access)))).toMatchObject({ access });
  });

  it.each([0, 4, 255])("is refused for access %i", (access) => {
    expect(readRegionDescriptor(changed((view) => view.setUint8(24, access)))).toContain(`access ${access}`);
  });

  it.each([0, 31, 33])("is refused with %i bytes", (bytes) => {
    expect(readRegionDescriptor(new Uint8Array(bytes))).toBe(`region descriptor has ${bytes} bytes`);
  });

  it.each([25, 26, 27, 28, 29, 30, 31])("is refused when reserved byte %i is set", (at) => {
    expect(readRegionDescriptor(changed((view) => view.setUint8(at, 1)))).toContain("does not know");
  });

  it("is refused when its length is no safe integer", () => {
    const tooLong = changed((view) => view.setBigUint64(16, 2n ** 53n, true));
    expect(readRegionDescriptor(tooLong)).toContain("length 9007199254740992");
  });

  it("is refused when it runs past the end of memory, and taken up to it", () => {
    const at = (address: bigint) => changed((view) => view.setBigUint64(8, address, true));
    const last = 0xffff_ffff_ffff_ffffn - BigInt(descriptor.bytes);
    expect(readRegionDescriptor(at(last))).toMatchObject({ address: last });
    expect(readRegionDescriptor(at(last + 1n))).toContain("past the end of memory");
  });
});
