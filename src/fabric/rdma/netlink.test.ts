import { randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { connectionsFrom } from "./connections.ts";
import { addressIn, nested, numberIn, parseAnswer, parseAttributes, textIn } from "./netlink.ts";

/** As the kernel lays them out: length and type, then the value, on borders of four bytes. */
function attribute(type: number, value: Buffer | number | string): Buffer {
  const bytes = typeof value === "number" ? u32(value) : Buffer.from(value as string);
  const whole = Buffer.alloc(4 + ((bytes.byteLength + 3) & ~3));
  whole.writeUInt16LE(4 + bytes.byteLength, 0);
  whole.writeUInt16LE(type, 2);
  bytes.copy(whole, 4);
  return whole;
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function message(type: number, ...parts: readonly Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  const header = Buffer.alloc(16);
  header.writeUInt32LE(16 + body.byteLength, 0);
  header.writeUInt16LE(type, 4);
  return Buffer.concat([header, body]);
}

const done = message(3, u32(0));
const socketAddress = (...bytes: readonly number[]) => Buffer.from([...bytes, ...new Array(112).fill(0)]);

const devices = message(5121, attribute(1, 7), attribute(2, "rxe0\0"));
const connections = message(
  5131,
  attribute(1, 7),
  attribute(
    30,
    Buffer.concat([
      attribute(
        31,
        Buffer.concat([
          attribute(21, 17),
          attribute(27, Buffer.from([5])),
          attribute(33, socketAddress(2, 0, 0x1c, 0xe8, 10, 77, 1, 1)),
          attribute(34, socketAddress(2, 0, 0x80, 0x01, 10, 77, 1, 2)),
          attribute(28, 4242),
        ]),
      ),
      attribute(31, Buffer.concat([attribute(27, Buffer.from([8])), attribute(28, 4242)])),
    ]),
  ),
);
const queuePairs = message(
  5130,
  attribute(
    19 | 0x8000,
    attribute(
      20 | 0x8000,
      Buffer.concat([attribute(21, 17), attribute(22, 18), attribute(27, Buffer.from([3]))]),
    ),
  ),
);

function kernel(answers: Readonly<Record<number, Buffer>>) {
  return connectionsFrom((command) => answers[command]);
}

describe("netlink of RDMA", () => {
  it("lists connections with their queue pairs", () => {
    const all = { 1: Buffer.concat([devices, done]), 10: queuePairs, 11: Buffer.concat([connections, done]) };
    expect(kernel(all)).toEqual([
      {
        device: "rxe0",
        state: "connect",
        local: "10.77.1.1:7400",
        remote: "10.77.1.2:32769",
        pid: 4242,
        queuePair: { number: 17, peerNumber: 18, state: "rts" },
      },
      { device: "rxe0", state: "listen", local: "", remote: "", pid: 4242, queuePair: undefined },
    ]);
  });

  it("lists nothing where the kernel has none, or no such interface", () => {
    expect(kernel({})).toEqual([]);
    expect(kernel({ 1: done })).toEqual([]);
    expect(kernel({ 1: devices })).toEqual([]);
  });

  it("reads addresses of both families", () => {
    const six = Buffer.alloc(128);
    six.writeUInt16LE(10, 0);
    six.writeUInt16BE(7400, 2);
    six.writeUInt8(0xfd, 8);
    six.writeUInt8(1, 23);
    const attributes = parseAttributes(
      Buffer.concat([
        attribute(33, six),
        attribute(34, socketAddress(27, 0, 1, 1)),
        attribute(36, socketAddress(2)),
      ]),
    );
    expect(addressIn(attributes, 33)).toBe("[fd00::1]:7400");
    expect(addressIn(attributes, 34)).toBe("");
    expect(addressIn(attributes, 35)).toBe("");
    expect(addressIn(attributes, 36)).toBe("");
  });

  it("says the kernel's error", () => {
    const refused = Buffer.alloc(4);
    refused.writeInt32LE(-22);
    expect(parseAnswer(message(2, refused))).toEqual({ messages: [], code: 22 });
    expect(parseAnswer(message(2))).toEqual({ messages: [], code: 0 });
  });

  it("leaves out what does not fit", () => {
    for (const length of [0, 3, 15, 17, 0xffff_ffff]) {
      const lying = message(5121, attribute(1, 7));
      lying.writeUInt32LE(length, 0);
      expect(parseAnswer(Buffer.concat([devices, lying])).messages.length).toBeLessThanOrEqual(2);
    }
    for (const length of [0, 3, 9, 0xffff]) {
      const lying = attribute(1, 7);
      lying.writeUInt16LE(length, 0);
      expect(parseAttributes(Buffer.concat([attribute(2, "a"), lying])).size).toBe(1);
    }
    const short = parseAttributes(
      Buffer.concat([attribute(1, Buffer.alloc(0)), attribute(33, Buffer.from([2]))]),
    );
    expect([numberIn(short, 1), textIn(short, 1), textIn(short, 9), addressIn(short, 33)]).toEqual([
      undefined,
      "",
      "",
      "",
    ]);
    expect(nested(short, 7)).toEqual([]);
  });

  it("survives any bytes", () => {
    const sound = [devices, queuePairs, connections];
    for (let round = 0; round < 3000; round++) {
      const [one, two, three] = sound.map((bytes) => {
        const spoilt = Buffer.from(bytes);
        for (const at of randomBytes(4)) spoilt[at % spoilt.byteLength] = randomBytes(1)[0] as number;
        return spoilt.subarray(0, randomBytes(1)[0] as number);
      });
      const found = kernel({ 1: one as Buffer, 10: two as Buffer, 11: three as Buffer });
      expect(found.length).toBeLessThan(100);
    }
  });
});
