import { describe, expect, it } from "vitest";
import { alignFrame, messageFault, messageHeaderBytes, Nonce, writeMessageHeader } from "./message.ts";

function header(bytes: number): DataView {
  const view = new DataView(new ArrayBuffer(64));
  writeMessageHeader(view, 8, 3, bytes, 0x01020304, new Nonce(0x1112131415161718n), 0x0a0b0c0d);
  return view;
}

describe("message header", () => {
  it("stands at its offset, little-endian, and nowhere else", () => {
    const view = header(0x30);
    expect(Buffer.from(view.buffer).toString("hex")).toBe(
      `${"00".repeat(8)}cb020300300000001817161514131211040302010d0c0b0a${"00".repeat(32)}`,
    );
    expect(messageFault(view, 8, 0x30)).toBe("");
  });

  it.each([...Array(messageHeaderBytes).keys()])("is refused when only %i bytes arrived", (bytes) => {
    expect(messageFault(header(48), 8, bytes)).toBe(`message of ${bytes} bytes is shorter than its header`);
  });

  it("is refused for a wrong magic byte", () => {
    const view = header(48);
    view.setUint8(8, 0xca);
    expect(messageFault(view, 8, 48)).toContain("magic");
  });

  it.each([0, 1, 3, 255])("is refused for version %i", (version) => {
    const view = header(48);
    view.setUint8(9, version);
    expect(messageFault(view, 8, 48)).toBe(`message has version ${version}, this side speaks 2`);
  });

  it.each([0, 47, 49, 0xffff_ffff])("is refused when it says %i bytes and 48 arrived", (bytes) => {
    expect(messageFault(header(bytes), 8, 48)).toBe(`message says ${bytes} bytes, 48 arrived`);
  });
});

describe("alignFrame", () => {
  it.each([
    [0, 0],
    [1, 8],
    [7, 8],
    [8, 8],
    [9, 16],
    [16_383, 16_384],
  ])("rounds %i up to %i", (offset, aligned) => expect(alignFrame(offset)).toBe(aligned));
});

describe("a nonce", () => {
  it("is found where it was written, and nowhere else", () => {
    const nonce = new Nonce(0x8899_aabb_ccdd_eeffn);
    const view = new DataView(new ArrayBuffer(24));
    writeMessageHeader(view, 0, 1, 24, 5, nonce, 1);
    expect([nonce.isIn(view, 0), nonce.isIn(view, 8)]).toEqual([true, false]);
    expect(view.getBigUint64(8, true)).toBe(nonce.value);
    for (const bit of [0n, 31n, 32n, 63n])
      expect(new Nonce(nonce.value ^ (1n << bit)).isIn(view, 0)).toBe(false);
  });

  it("is drawn anew each time", () => {
    const drawn = Array.from({ length: 100 }, () => Nonce.draw().value);
    expect(new Set(drawn).size).toBe(100);
    expect(drawn).not.toContain(0n);
  });
});
