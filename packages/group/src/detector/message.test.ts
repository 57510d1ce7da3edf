import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { decode, encode, type Message, maxIncarnation, maxMessageBytes, maxUpdates } from "./message.ts";

const group = 0xfedc_ba98;

const id = fc.integer({ min: 0, max: 0xffff_ffff });
const incarnation = fc.oneof(fc.integer({ min: 0, max: 9 }), fc.integer({ min: 0, max: maxIncarnation }));
const update = fc.oneof(
  fc.record({ member: id, status: fc.constantFrom("alive", "stalled", "left", "dead"), incarnation }),
  fc.record({ member: id, status: fc.constant("suspect"), incarnation, accuser: id }),
);
const header = {
  ...{ from: id, to: id, incarnation, status: fc.constantFrom("alive", "stalled", "left") },
  updates: fc.array(update, { maxLength: maxUpdates }),
};
const message = fc.oneof(
  fc.record({ kind: fc.constantFrom("ping", "ack", "nack"), ...header, sequence: id }),
  fc.record({ kind: fc.constant("indirect-ping"), ...header, sequence: id, target: id }),
  fc.record({ kind: fc.constant("gossip"), ...header }),
) as fc.Arbitrary<Message>;

describe("the bytes of a message", () => {
  it("come back as what they were, and are no longer than the limit", () => {
    const check = (sent: Message) => {
      const bytes = encode(group, sent);
      expect(bytes.length).toBeLessThanOrEqual(maxMessageBytes);
      expect(decode(group, bytes)).toEqual(sent);
    };
    fc.assert(fc.property(message, check), { numRuns: 300, seed: 1 });
  });

  it("are those that members of other versions expect", () => {
    const bytes = encode(0x0403_0201, {
      ...{
        kind: "indirect-ping",
        from: 1,
        to: 300,
        incarnation: 2,
        status: "stalled",
        sequence: 5,
        target: 7,
      },
      updates: [{ member: 9, status: "suspect", incarnation: 1, accuser: 4 }],
    });
    const hex = "d1 01020304 13 01 ac02 02 05 07 01 09 01 03 04";
    expect(Buffer.from(bytes).toString("hex")).toBe(hex.replaceAll(" ", ""));
  });

  it("are refused when they are cut short or go on", () => {
    const check = (sent: Message) => {
      const bytes = encode(group, sent);
      for (let length = 0; length < bytes.length; length += 1)
        expect(decode(group, bytes.subarray(0, length))).toBe("malformed");
      expect(decode(group, Uint8Array.of(...bytes, 0))).toBe("malformed");
    };
    fc.assert(fc.property(message, check), { numRuns: 50, seed: 1 });
  });

  it("are never read as another message than the one that has just these bytes", () => {
    const flip = fc.record({ sent: message, at: fc.nat(), to: fc.integer({ min: 0, max: 255 }) });
    const check = ({ sent, at, to }: { sent: Message; at: number; to: number }) => {
      const bytes = encode(group, sent);
      bytes[at % bytes.length] = to;
      const read = decode(group, bytes);
      if (typeof read !== "string") expect(encode(group, read)).toEqual(bytes);
    };
    fc.assert(fc.property(flip, check), { numRuns: 1000, seed: 1 });
  });

  it("of another group are foreign", () => {
    const bytes = encode(1, { kind: "gossip", from: 0, to: 1, incarnation: 0, status: "alive", updates: [] });
    expect(decode(2, bytes)).toBe("foreign");
  });

  it.each([
    ["a kind that does not exist", [0x05, 0, 1, 0, 0, 0]],
    ["a sender that calls itself suspect", [0x30, 0, 1, 0, 0, 0]],
    ["more updates than a message has", [0x00, 0, 1, 0, 0, 17, ...Array(51).fill(1)]],
    ["an id of more than 32 bits", [0x00, 0xff, 0xff, 0xff, 0xff, 0x10, 1, 0, 0, 0]],
    ["a number that is longer than it needs to be", [0x00, 0x80, 0x00, 1, 0, 0, 0]],
    ["an incarnation above the limit", [0x00, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]],
    ["a status that does not exist", [0x00, 0, 1, 0, 0, 1, 1, 1, 5]],
  ])("are refused for %s", (_, rest) => {
    expect(decode(0, Uint8Array.of(0xd1, 0, 0, 0, 0, ...rest))).toBe("malformed");
  });
});
