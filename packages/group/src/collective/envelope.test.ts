import { describe, expect, it } from "vitest";
import { type Envelope, envelopeSchema, type Reply, replySchema } from "./envelope.ts";

const envelope: Envelope = {
  ...{ group: "g", root: "00", rootRank: 0, call: 1, oldest: 1, version: 1, isStrict: true, incarnation: 0 },
  ...{ ranks: [1, 2], members: undefined, tree: { kind: "flat" }, level: 1, onFailure: "fail", marginMs: 20 },
  ...{ input: undefined, inputs: undefined, region: undefined, checksum: undefined },
};
const reply: Reply = {
  ...{ refusal: undefined, value: 1, ok: [1], failed: [], repaired: [], elapsedMs: 0.5 },
};
const member = { rank: 1, incarnation: 0, engine: undefined, urls: ["mem://a"], host: undefined };
const validate = (schema: typeof envelopeSchema | typeof replySchema, value: unknown) =>
  schema["~standard"].validate(value) as { readonly issues?: readonly { readonly path?: unknown }[] };

describe("an envelope", () => {
  it.each([
    ["as it is", {}],
    ["of an observer", { rootRank: undefined }],
    ["with members", { isStrict: false, members: [member, { ...member, rank: 2 }] }],
    ["with a tree of a ratio", { tree: { kind: "knomial", ratio: 64 } }],
    ["with inputs", { inputs: [1, 2] }],
  ])("passes %s", (_, change) => {
    expect(validate(envelopeSchema, { ...envelope, ...change }).issues).toBeUndefined();
  });

  it.each<[string, object]>([
    ["group", { group: 1 }],
    ["group", { group: "g".repeat(5000) }],
    ["rootRank", { rootRank: -1 }],
    ["call", { call: 0.5 }],
    ["ranks", { ranks: [] }],
    ["ranks", { ranks: [1, 1] }],
    ["ranks", { ranks: "1" }],
    ["ranks", { ranks: new Array(65_537).fill(0).map((_, rank) => rank) }],
    ["members", { members: [member] }],
    ["members", { members: [member, member] }],
    ["members", { members: [member, { ...member, rank: 2, urls: [] }] }],
    ["tree", { tree: { kind: "knomial", ratio: 1 } }],
    ["tree", { tree: { kind: "ring" } }],
    ["tree", { tree: null }],
    ["onFailure", { onFailure: "ignore" }],
    ["marginMs", { marginMs: Number.NaN }],
    ["inputs", { inputs: [1] }],
  ])("is refused for its %s: %o", (field, change) => {
    expect(validate(envelopeSchema, { ...envelope, ...change }).issues).toMatchObject([{ path: [field] }]);
  });
});

describe("a reply", () => {
  const failure = { rank: 1, code: "unavailable", message: "", executed: "no", retryable: true };

  it("passes with failures, or with a refusal", () => {
    expect(validate(replySchema, { ...reply, failed: [failure] }).issues).toBeUndefined();
    expect(validate(replySchema, { ...reply, refusal: failure }).issues).toBeUndefined();
  });

  it.each<[string, object]>([
    ["refusal", { refusal: "no" }],
    ["ok", { ok: [0.5] }],
    ["failed", { failed: [{ ...failure, code: "lost" }] }],
    ["failed", { failed: [{ ...failure, executed: "perhaps" }] }],
    ["failed", { failed: [{ ...failure, code: "toString" }] }],
    ["elapsedMs", { elapsedMs: -1 }],
  ])("is refused for its %s: %o", (field, change) => {
    expect(validate(replySchema, { ...reply, ...change }).issues).toMatchObject([{ path: [field] }]);
  });

  it("is refused where it is no object", () => {
    for (const value of [undefined, null, 1, "reply"])
      expect(validate(replySchema, value).issues).toHaveLength(1);
  });
});
