import { describe, expect, it } from "vitest";
import { inheritTrace, Metadata, noMetadata, packMetadata, receivedMetadata, traceOf } from "./metadata.ts";
import { writeMetadata } from "./metadata-block.ts";

const received = () => {
  const block = writeMetadata(
    new Map<string, string | Uint8Array>([
      ["x-tenant", "acme"],
      ["key", Uint8Array.of(1, 2)],
    ]),
  );
  return receivedMetadata(Buffer.from(block as Uint8Array));
};

describe("metadata", () => {
  it("holds texts and bytes by name", () => {
    const metadata = new Metadata({ "x-tenant": "acme", key: Uint8Array.of(1, 2) });
    expect(metadata.get("x-tenant")).toBe("acme");
    expect(metadata.getBytes("key")).toEqual(Uint8Array.of(1, 2));
    expect(metadata.get("key")).toBeUndefined();
    expect(metadata.getBytes("x-tenant")).toBeUndefined();
    expect(metadata.has("other")).toBe(false);
    expect(metadata.size).toBe(2);
    expect(JSON.stringify(metadata)).toBe('{"x-tenant":"acme","key":"<2 bytes>"}');
    expect(metadata.delete("key")).toBe(true);
    expect([...metadata]).toEqual([["x-tenant", "acme"]]);
  });

  it("refuses malformed entries, naming them", () => {
    expect(() => new Metadata({ "X-Tenant": "a" })).toThrow('the name "X-Tenant"');
    expect(() => new Metadata({ a: "x\ny" })).toThrow('the value of "a" has a control character');
    expect(() => new Metadata({ a: 7 as never })).toThrow("must be a string or a Uint8Array");
  });

  it("that was received cannot be changed, but copied", () => {
    const metadata = received();
    expect(() => metadata.set("a", "b")).toThrow("cannot be changed");
    expect(() => metadata.delete("key")).toThrow("cannot be changed");
    expect(() => noMetadata.set("a", "b")).toThrow("cannot be changed");
    const copy = new Metadata(metadata).set("a", "b");
    expect([...copy].map(([name]) => name)).toEqual(["x-tenant", "key", "a"]);
    expect(metadata.size).toBe(2);
  });

  it("has no block when it is empty, and says which limit it exceeds", () => {
    expect(packMetadata(new Metadata())).toBeUndefined();
    const big = new Metadata({ a: "x".repeat(9000) });
    expect(() => packMetadata(big)).toThrow("invalid_argument");
  });

  it("passes on trace context and baggage, and nothing else", () => {
    const around = new Metadata({ traceparent: "00-a", baggage: "k=v", "x-tenant": "acme" });
    expect(traceOf({ metadata: around })).toBe(around);
    expect(traceOf({ metadata: new Metadata({ "x-tenant": "acme" }) })).toBeUndefined();
    expect(traceOf(undefined)).toBeUndefined();
    const own = new Metadata({ traceparent: "00-b" });
    inheritTrace(own, around);
    expect([...own]).toEqual([
      ["traceparent", "00-b"],
      ["baggage", "k=v"],
    ]);
  });
});
