import { describe, expect, it } from "vitest";
import {
  type Greeting,
  greetingLimits,
  minMessageBytes,
  packGreeting,
  parseGreeting,
  parseReturnPath,
  parseServices,
  versionFault,
} from "./handshake.ts";

const greeting: Greeting = {
  versions: [2, 2],
  incarnation: 0xf000_0000_0000_0001n,
  session: 7,
  nonce: 0xf000_0000_ffff_ffffn,
  address: Uint8Array.of(1, 2, 3),
  agent: "test",
  messageBytes: 16_384,
  bodyBytes: 2 ** 40,
  requests: 4096,
  immediateBytes: 0,
  heartbeatMs: 1000,
  bodyStallMs: 10_000,
  services: [["files.v1", ["list", "read"]]],
};
const packed = packGreeting(greeting);
const parse = (change: Record<string, unknown>) => parseGreeting({ ...packed, ...change });

describe("greeting", () => {
  it("comes back as it was packed", () => expect(parseGreeting(packed)).toEqual(greeting));

  it("says that notices come with puts only where they do", () => {
    const carrying = packGreeting({ ...greeting, immediateBytes: 8 });
    expect([packed.imm, carrying.imm]).toEqual([undefined, 8]);
    expect(parseGreeting(carrying)).toEqual({ ...greeting, immediateBytes: 8 });
  });

  it("says how long its sender waits for a silent peer only where that is not the usual", () => {
    const impatient = packGreeting({ ...greeting, heartbeatMs: 100 });
    expect([packed.hbt, impatient.hbt]).toEqual([undefined, 100]);
    expect(parseGreeting(impatient)).toEqual({ ...greeting, heartbeatMs: 100 });
  });

  it("says how long its sender keeps bodies that nobody reads only where that is not the usual", () => {
    const impatient = packGreeting({ ...greeting, bodyStallMs: 300 });
    expect([packed.stl, impatient.stl]).toEqual([undefined, 300]);
    expect(parseGreeting(impatient)).toEqual({ ...greeting, bodyStallMs: 300 });
  });

  it("ignores keys it does not know, which later versions may add", () => {
    expect(parse({ crd: 5, auth: { kind: "x" } })).toEqual(greeting);
  });

  it.each([null, undefined, 7, "x", [], [{}], true])("is refused when it is no map: %j", (body) => {
    expect(parseGreeting(body)).toBe("greeting is not a map");
  });

  it.each(Object.keys(packed))("is refused without its key %s", (key) => {
    const { [key]: _, ...rest } = packed;
    expect(parseGreeting(rest)).toMatch(/^greeting (has|states) /);
  });

  const wrong: Record<string, readonly [unknown[], string]> = {
    v: [
      [undefined, 1, [], [1], [1, 1, 1], [2, 1], ["1", "1"], [-1, 1], [0.5, 1], [1, 2 ** 32]],
      "protocol versions",
    ],
    inc: [[null, "1", -1, 1.5, Number.NaN, {}], "incarnation"],
    ses: [[0, -1, 1.5, 2 ** 32, "1", 1n], "session"],
    non: [[-1, 1.5, 0, 0n, 1n << 64n, "1", null], "nonce"],
    adr: [[null, "abc", [1, 2], new Uint8Array(257), new Uint16Array(2)], "address"],
    agt: [[null, 7, "x".repeat(257)], "agent"],
    msg: [[0, 4095, -1, 4096.5, 2 ** 32, "4096"], "message limit"],
    bod: [[-1, 1.5, 2 ** 53, 2n ** 53n, "1", Number.POSITIVE_INFINITY], "body limit"],
    req: [[0, -1, 1.5, 2 ** 32, "1"], "request limit"],
    imm: [[-1, 1.5, 2 ** 32, "8", null, 8n], "length of put notifications"],
    hbt: [[0, -1, 1.5, 2 ** 32, "1000", null, 8n], "heartbeat"],
    stl: [[0, -1, 1.5, 2 ** 32, "1000", null, 8n], "how long bodies are kept"],
    svc: [
      [
        null,
        {},
        "x",
        [[]],
        [["a"]],
        [["a", {}]],
        [["a", [], 1]],
        [[1, []]],
        [["", []]],
        [["a", [""]]],
        [["a", [7]]],
      ],
      "service",
    ],
  };

  it.each(Object.keys(wrong))("is refused for every wrong %s", (key) => {
    const [values, message] = wrong[key] as readonly [unknown[], string];
    for (const value of values)
      expect(parse({ [key]: value }), `${key}: ${String(value)}`).toContain(message);
  });

  it("takes the limits themselves", () => {
    expect(parse({ adr: new Uint8Array(greetingLimits.maxAddressBytes) })).toBeTypeOf("object");
    expect(parse({ adr: new Uint8Array(0) })).toBeTypeOf("object");
    expect(parse({ agt: "x".repeat(greetingLimits.maxAgentLength) })).toBeTypeOf("object");
    expect(parse({ msg: minMessageBytes, bod: 0, req: 1 })).toBeTypeOf("object");
  });

  it("takes whole numbers however wide they travelled, and incarnations however signed", () => {
    expect(parse({ inc: 5 })).toMatchObject({ incarnation: 5n });
    expect(parse({ inc: -1n })).toMatchObject({ incarnation: 0xffff_ffff_ffff_ffffn });
    expect(parse({ bod: 2n ** 40n })).toMatchObject({ bodyBytes: 2 ** 40 });
  });

  it.each([
    [3, 4],
    [0, 0],
  ])("names both sides' versions when %i to %i is all a peer speaks", (lowest, highest) => {
    const text = `peer speaks protocol ${lowest} to ${highest}, this side 2`;
    expect(parse({ v: [lowest, highest] })).toBe(text);
    expect(versionFault({ ...packed, v: [lowest, highest] })).toBe(text);
  });

  it.each([
    [2, 2],
    [0, 2],
    [1, 9],
  ])("is taken from a peer that speaks %i to %i", (lowest, highest) => {
    expect(parse({ v: [lowest, highest] })).toMatchObject({ versions: [lowest, highest] });
    expect(versionFault({ v: [lowest, highest] })).toBe("");
  });
});

describe("return path", () => {
  it("is found in a greeting of which nothing else is understood", () => {
    const { ses, non, adr, msg } = packed;
    expect(parseReturnPath({ ses, non, adr, msg, v: "?", inc: [] })).toEqual({
      session: 7,
      nonce: 0xf000_0000_ffff_ffffn,
      address: Uint8Array.of(1, 2, 3),
      messageBytes: 16_384,
    });
  });

  it("is not found where it is incomplete", () => {
    for (const key of ["ses", "non", "adr", "msg"]) {
      expect(parseReturnPath({ ...packed, [key]: undefined })).toBeTypeOf("string");
    }
    expect(parseReturnPath(undefined)).toBe("greeting is not a map");
  });
});

describe("service table", () => {
  const names = (count: number) => Array.from({ length: count }, (_, i) => `m${i}`);

  it("is taken up to its limits and refused beyond", () => {
    const { maxServices, maxMethods, maxNameLength } = greetingLimits;
    const services = names(maxServices + 1).map((name) => [name, []]);
    expect(parseServices(services.slice(1))).toHaveLength(maxServices);
    expect(parseServices(services)).toBe(`greeting names ${maxServices + 1} services`);
    expect(parseServices([["a", names(maxMethods)]])).toBeTypeOf("object");
    const tooMany = [
      ["a", names(maxMethods)],
      ["b", ["one"]],
    ];
    expect(parseServices(tooMany)).toBe(`greeting names more than ${maxMethods} methods`);
    expect(parseServices([["x".repeat(maxNameLength), ["y".repeat(maxNameLength)]]])).toBeTypeOf("object");
    expect(parseServices([["x".repeat(maxNameLength + 1), []]])).toBe("greeting has a malformed service");
    expect(parseServices([["x", ["y".repeat(maxNameLength + 1)]]])).toBe(
      "greeting has a malformed method in service x",
    );
  });

  it("knows five kinds of methods", () => {
    expect(parseServices([["x", ["a", ["b", 0], ["c", 4]]]])).toBeTypeOf("object");
    for (const kind of [5, 255, -1, 1.5, "1"])
      expect(parseServices([["x", [["a", kind]]]])).toBe("greeting has a malformed method in service x");
  });

  it("is refused when it names anything twice, because numbers would be ambiguous", () => {
    expect(
      parseServices([
        ["a", []],
        ["a", []],
      ]),
    ).toBe("greeting names service a twice");
    expect(parseServices([["a", ["m", "m"]]])).toBe("greeting names a method of service a twice");
    expect(
      parseServices([
        ["a", ["m"]],
        ["b", ["m"]],
      ]),
    ).toBeTypeOf("object");
  });
});
