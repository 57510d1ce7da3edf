import { describe, expect, it } from "vitest";
import {
  inherit,
  Metadata,
  nestedMetadataOf,
  noMetadata,
  packMetadata,
  passesOn,
  receivedMetadata,
} from "./metadata.ts";
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

const read = (block: Uint8Array | undefined) => receivedMetadata(Buffer.from(block as Uint8Array));

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

  it("has several values of a name: the first, and all", () => {
    const key = Uint8Array.of(1, 2);
    const metadata = new Metadata({ via: ["a", "b"], key: [key, "text"], one: "1" });
    metadata.append("via", "c").append("one", ["2", "3"]).append("new", "x");
    const check = (given: Metadata) => {
      expect([given.get("via"), given.get("one"), given.get("new"), given.get("key")]).toEqual([
        ...["a", "1", "x"],
        undefined,
      ]);
      expect(given.getBytes("key")).toEqual(key);
      expect([given.getAll("via"), given.getAll("one"), given.getAll("key"), given.getAll("none")]).toEqual([
        ...[
          ["a", "b", "c"],
          ["1", "2", "3"],
          [key, "text"],
        ],
        [],
      ]);
      expect([given.size, [...given.keys()]]).toEqual([9, ["via", "key", "one", "new"]]);
      expect([...given].filter(([name]) => name === "via")).toEqual([
        ["via", "a"],
        ["via", "b"],
        ["via", "c"],
      ]);
      expect(given.toJSON()).toMatchObject({ via: ["a", "b", "c"], key: ["<2 bytes>", "text"], new: "x" });
    };
    check(metadata);
    check(read(packMetadata(metadata)));
    check(new Metadata(new Map([...metadata.keys()].map((name) => [name, metadata.getAll(name)]))));
    const copy = new Metadata(metadata);
    copy.append("via", "d").set("one", "only").set("new", []);
    check(metadata);
    expect(copy.getAll("via")).toEqual(["a", "b", "c", "d"]);
    expect([copy.getAll("one"), copy.has("new"), copy.delete("via"), copy.has("via")]).toEqual([
      ["only"],
      false,
      true,
      false,
    ]);
  });

  it("takes each cookie of Headers", () => {
    const headers = new Headers([
      ["set-cookie", "a=1"],
      ["set-cookie", "b=2"],
    ]);
    expect(new Metadata(headers).getAll("set-cookie")).toEqual(["a=1", "b=2"]);
    expect(read(packMetadata(headers)).getAll("set-cookie")).toEqual(["a=1", "b=2"]);
  });

  it("is packed again when an array of it has changed", () => {
    const via = ["a"];
    packMetadata({ via });
    via.push("b");
    expect(read(packMetadata({ via })).getAll("via")).toEqual(["a", "b"]);
    const metadata = new Metadata({ via });
    packMetadata(metadata);
    metadata.append("via", "c");
    expect(read(packMetadata(metadata)).getAll("via")).toEqual(["a", "b", "c"]);
  });

  it("passes on all values of a name", () => {
    const metadata = new Metadata({ baggage: ["a=1", "b=2"] });
    const [own, other] = [new Metadata(), new Metadata({ baggage: "own" })];
    inherit(own, { metadata, nestedMetadata: undefined });
    inherit(other, { metadata, nestedMetadata: new Metadata({ id: ["1", "2"], baggage: "x" }) });
    expect(own.getAll("baggage")).toEqual(["a=1", "b=2"]);
    expect([other.getAll("baggage"), other.getAll("id")]).toEqual([["own"], ["1", "2"]]);
  });

  it("is made of a Map, and of Headers, and of nothing else that is iterated", () => {
    const given = { "x-a": "1", "x-b": "2" };
    const block = packMetadata(given);
    for (const init of [new Headers(given), new Map(Object.entries(given))]) {
      expect(new Metadata(init).toJSON()).toEqual(given);
      expect(packMetadata(init)).toEqual(block);
      expect(packMetadata(new Metadata(init))).toEqual(block);
    }
    for (const init of [Object.entries(given), Object.entries(given).values()])
      expect(() => new Metadata(init as never)).toThrow("must be an object, a Metadata, a Map or Headers");
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

  it("is packed once, and again when it has changed", () => {
    const metadata = new Metadata({ a: "1" });
    const block = packMetadata(metadata);
    expect(packMetadata(metadata)).toBe(block);
    metadata.set("a", "2");
    expect(read(packMetadata(metadata)).get("a")).toBe("2");
    metadata.delete("a");
    expect(packMetadata(metadata)).toBeUndefined();
  });

  it("packs bytes each time, because their owner may change them", () => {
    const key = Uint8Array.of(1);
    const metadata = new Metadata({ key });
    packMetadata(metadata);
    packMetadata({ key });
    key[0] = 2;
    expect(read(packMetadata(metadata)).getBytes("key")).toEqual(key);
    expect(read(packMetadata({ key })).getBytes("key")).toEqual(key);
  });

  it("packs a plain object once, as long as its own entries are the same", () => {
    const block = packMetadata({ a: "1", b: "2" });
    expect(packMetadata({ a: "1", b: "2" })).toBe(block);
    const others: Record<string, string>[] = [
      { a: "1" },
      { a: "1", b: "3" },
      { a: "1", b: "2", c: "4" },
      { b: "2", a: "1" },
    ];
    for (const other of others) {
      expect(Object.fromEntries(read(packMetadata(other)))).toEqual(other);
      packMetadata({ a: "1", b: "2" });
    }
    const heir = Object.assign(Object.create({ a: "1" }), { b: "2" });
    expect(Object.fromEntries(read(packMetadata(heir)))).toEqual({ b: "2" });
  });

  it("passes on trace context and baggage, and nothing else", () => {
    const metadata = new Metadata({ traceparent: "00-a", baggage: "k=v", "x-tenant": "acme" });
    const around = { metadata, nestedMetadata: undefined };
    expect(passesOn(around)).toBe(true);
    expect(passesOn({ metadata: new Metadata({ "x-tenant": "acme" }), nestedMetadata: undefined })).toBe(
      false,
    );
    expect(passesOn(undefined)).toBe(false);
    const own = new Metadata({ traceparent: "00-b" });
    inherit(own, around);
    expect([...own]).toEqual([
      ["traceparent", "00-b"],
      ["baggage", "k=v"],
    ]);
  });

  it("passes on what was set for nested calls, instead of the request's own entries", () => {
    const metadata = new Metadata({ traceparent: "00-a", "x-tenant": "acme" });
    const nestedMetadata = nestedMetadataOf({ metadata });
    expect([...nestedMetadata]).toEqual([["traceparent", "00-a"]]);
    nestedMetadata.set("x-request-id", "7");
    nestedMetadata.delete("traceparent");
    const own = new Metadata({ "x-tenant": "other" });
    inherit(own, { metadata, nestedMetadata });
    expect([...own]).toEqual([
      ["x-tenant", "other"],
      ["x-request-id", "7"],
    ]);
    expect(passesOn({ metadata, nestedMetadata: new Metadata() })).toBe(false);
  });
});
