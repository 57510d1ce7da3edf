import { describe, expect, it } from "vitest";
import { packMetadata } from "../../wire/metadata/metadata.ts";
import { RequestMetadata } from "./frame-prefix.ts";

const slab = Buffer.alloc(4096);
const view = new DataView(slab.buffer, slab.byteOffset, slab.byteLength);

/** Takes a block that stands at `start`, before a body of 8 bytes. */
function takeAt(requests: RequestMetadata, start: number, block: Uint8Array) {
  slab.set(block, start);
  const taken = requests.take(slab, view, start, start + block.byteLength + 8);
  if (typeof taken === "string") throw new Error(taken);
  expect(requests.bytes).toBe(block.byteLength);
  return taken;
}

const pack = (entries: Record<string, string | Uint8Array>) => packMetadata(entries) as Uint8Array;

describe("the metadata of a session's requests", () => {
  it("are shared by requests one after the other that carry the same", () => {
    const requests = new RequestMetadata();
    const first = takeAt(requests, 64, pack({ "x-tenant": "acme", traceparent: "00-a" }));
    slab.fill(0, 64, 128);
    for (const start of [128, 512, 64])
      expect(takeAt(requests, start, pack({ "x-tenant": "acme", traceparent: "00-a" }))).toBe(first);
    expect(Object.fromEntries(first)).toEqual({ "x-tenant": "acme", traceparent: "00-a" });
  });

  it("are their own where a single byte differs, however often the others came", () => {
    const requests = new RequestMetadata();
    for (const trace of ["00-a", "00-a", "00-a", "00-b", "00-b", "00-c"]) {
      const taken = takeAt(requests, 64, pack({ "x-tenant": "acme", traceparent: trace }));
      expect(taken.get("traceparent")).toBe(trace);
    }
  });

  it("are their own where they have bytes, which a handler could change, and where they are long", () => {
    for (const entries of [{ key: Uint8Array.of(1) }, { text: "x".repeat(1100) }]) {
      const requests = new RequestMetadata();
      expect(takeAt(requests, 64, pack(entries))).not.toBe(takeAt(requests, 64, pack(entries)));
    }
  });

  it("are checked where the frame ends before the block that came before", () => {
    const requests = new RequestMetadata();
    const block = pack({ "x-tenant": "acme" });
    for (let i = 0; i < 3; i++) takeAt(requests, 64, block);
    expect(requests.take(slab, view, 64, 64 + block.byteLength - 8)).toContain("runs past the end");
  });
});
