import { describe, expect, it } from "vitest";
import {
  frameFault,
  frameFlag,
  frameHeaderBytes,
  frameKind,
  readRendezvous,
  rendezvousBytes,
  writeHead,
  writeRendezvous,
} from "./frame.ts";

const end = 64;

function frame(kind: number, flags = 0, bodyBytes = 8): DataView {
  const view = new DataView(new ArrayBuffer(end));
  writeHead(view, 16, { kind, method: 0x0203, callId: 0x00100004, word: 0x0a0b0c0d }, flags, bodyBytes);
  return view;
}

describe("frame header", () => {
  it("stands at its offset, little-endian, and nowhere else", () => {
    const bytes = Buffer.from(frame(4, 2).buffer).toString("hex");
    expect(bytes).toBe(
      `${"00".repeat(16)}040203020400100008000000 0d0c0b0a${"00".repeat(32)}`.replace(" ", ""),
    );
  });

  it.each(Object.values(frameKind))("is taken with kind %i and every known flag", (kind) => {
    for (const flags of [
      0,
      frameFlag.rendezvous,
      frameFlag.grants,
      frameFlag.rendezvous | frameFlag.grants,
    ]) {
      const isOfRequest = (flags & frameFlag.grants) !== 0 && kind !== frameKind.request;
      const fault = isOfRequest ? `frame kind ${kind} has flags of a request: 0x${flags.toString(16)}` : "";
      expect(frameFault(frame(kind, flags), 16, end)).toBe(fault);
    }
  });

  it.each([0, 32, 64, 255])("is refused for kind %i", (kind) => {
    expect(frameFault(frame(kind), 16, end)).toBe(`frame kind ${kind} is unknown`);
  });

  it.each([0x80, 0xc0, 0xff])("is refused for flags %i", (flags) => {
    expect(frameFault(frame(4, flags), 16, end)).toBe(`frame has unknown flags 0x${flags.toString(16)}`);
  });

  it("is refused when it is cut off, at every length", () => {
    for (let bytes = 0; bytes < frameHeaderBytes; bytes++) {
      expect(frameFault(frame(4), 16, 16 + bytes)).toBe("frame header is cut off");
    }
    // The padding of the frame before it may have run past the end.
    expect(frameFault(frame(4), 16, 9)).toBe("frame header is cut off");
  });

  it("takes a body that ends with its message and refuses one byte more", () => {
    expect(frameFault(frame(4, 0, 32), 16, end)).toBe("");
    expect(frameFault(frame(4, 0, 33), 16, end)).toContain("33 bytes runs past the end");
    expect(frameFault(frame(4, 0, 0xffff_ffff), 16, end)).toContain("runs past the end");
  });

  it("takes the priority of a request beside the other flags, and of no other kind", () => {
    const flags = frameFlag.control | frameFlag.rendezvous | frameFlag.identity;
    expect(frameFault(frame(4, flags), 16, end)).toBe("");
    expect(frameFault(frame(5, frameFlag.control), 16, end)).toContain("flags of a request");
    expect(frameFault(frame(4, 16), 16, end)).toContain("unknown flags 0x10");
  });
});

describe("rendezvous descriptor", () => {
  const view = new DataView(new ArrayBuffer(40));
  const rendezvous = { key: 0x1122334455667788n, address: 0xffff_ffff_0000_0000n, bytes: 5_000_000_000 };

  it("comes back as it was written", () => {
    writeRendezvous(view, 8, rendezvous);
    expect(readRendezvous(view, 8, rendezvousBytes, 5_000_000_000)).toEqual(rendezvous);
    expect(Buffer.from(view.buffer, 8, 24).toString("hex")).toBe(
      "8877665544332211" + "00000000ffffffff" + "00f2052a01000000",
    );
  });

  it.each([0, 23, 25, 0xffff_ffff])("is refused in a body of %i bytes", (bytes) => {
    expect(readRendezvous(view, 8, bytes, 100)).toBe(`rendezvous descriptor has ${bytes} bytes, not 24`);
  });

  it("is refused for an empty body", () => {
    writeRendezvous(view, 8, { ...rendezvous, bytes: 0 });
    expect(readRendezvous(view, 8, rendezvousBytes, 100)).toBe("rendezvous body is empty");
  });

  it("is refused beyond the limit, and before the length becomes a number", () => {
    writeRendezvous(view, 8, { ...rendezvous, bytes: 100 });
    expect(readRendezvous(view, 8, rendezvousBytes, 100)).toMatchObject({ bytes: 100 });
    expect(readRendezvous(view, 8, rendezvousBytes, 99)).toBe(
      "rendezvous body of 100 bytes exceeds maxBodyBytes 99",
    );
    view.setBigUint64(24, 0xffff_ffff_ffff_ffffn, true);
    expect(readRendezvous(view, 8, rendezvousBytes, 99)).toContain("18446744073709551615 bytes exceeds");
  });
});
