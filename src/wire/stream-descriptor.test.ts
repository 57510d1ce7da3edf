import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { readHandleDescriptor, writeHandleDescriptor } from "./handle-descriptor.ts";
import { writeRegionDescriptor } from "./region-descriptor.ts";
import { readStreamDescriptor, writeStreamDescriptor } from "./stream-descriptor.ts";

const region = (bytes: number, access = 1) =>
  writeRegionDescriptor({ access, bytes, segments: [{ key: 7n, address: 0n, bytes }] });
const stream = { direction: 1, chunks: 3, chunkBytes: 4096, stream: 2n ** 64n - 1n };

describe("a stream's descriptor", () => {
  it("comes back as it was", () => {
    const payload = writeStreamDescriptor(stream, region(3 * 4096));
    expect(readStreamDescriptor(payload)).toMatchObject({ ...stream, region: { bytes: 12_288, access: 1 } });
  });

  it.each([
    ["a wrong version", (view: DataView) => view.setUint8(0, 2), "has version 2"],
    ["no direction", (view: DataView) => view.setUint8(1, 3), "has direction 3"],
    ["one chunk", (view: DataView) => view.setUint16(2, 1, true), "has 1 chunks"],
    ["short chunks", (view: DataView) => view.setUint32(4, 4095, true), "chunks of 4095 bytes"],
    ["another ring than its chunks need", (view: DataView) => view.setUint16(2, 4, true), "has a region of"],
    ["a ring for the other direction", (view: DataView) => view.setUint8(1, 2), "region of access 1"],
  ])("with %s is refused", (_, change, message) => {
    const payload = writeStreamDescriptor(stream, region(3 * 4096));
    change(new DataView(payload.buffer));
    expect(readStreamDescriptor(payload)).toContain(message);
  });

  it("never throws, whatever the bytes", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 100 }), (bytes) => {
        expect(["string", "object"]).toContain(typeof readStreamDescriptor(bytes));
      }),
    );
  });
});

const handle = {
  urls: ["shm://a", "tcp://[::1]:7400"],
  incarnation: 2n ** 63n,
  token: Uint8Array.from({ length: 16 }, (_, i) => i),
  bytes: 2 ** 40,
  access: 3,
  leaseMs: 1234,
};

describe("a handle's descriptor", () => {
  it("comes back as it was, without a view of the message", () => {
    const payload = Buffer.from(writeHandleDescriptor(handle));
    const read = readHandleDescriptor(payload);
    payload.fill(0);
    expect(read).toEqual(handle);
  });

  it("is cut off, too long, or of no form, and refused", () => {
    const payload = writeHandleDescriptor(handle);
    expect(readHandleDescriptor(payload.subarray(0, 39))).toBe("handle has 39 bytes");
    expect(readHandleDescriptor(payload.subarray(0, payload.length - 1))).toBe("handle is cut off");
    expect(readHandleDescriptor(Buffer.concat([payload, Buffer.from([0])]))).toBe(
      "handle has bytes after its URLs",
    );
    for (const [at, value, message] of [
      [0, 9, "version 9"],
      [1, 0, "access 0"],
      [2, 17, "17 URLs"],
      [41, 0, "a URL that is none"],
    ] as const) {
      const changed = payload.slice();
      changed[at] = value;
      expect(readHandleDescriptor(changed)).toContain(message);
    }
  });

  it("never throws, whatever the bytes", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        expect(["string", "object"]).toContain(typeof readHandleDescriptor(bytes));
      }),
    );
  });
});
