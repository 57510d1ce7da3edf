import { describe, expect, it } from "vitest";
import type { FrameSpec } from "../../src/session/connection/fake-services.test-support.ts";
import { frameFlag, frameKind, writeRendezvous } from "../../src/wire/frame.ts";
import { messageHeaderBytes, numberOffset } from "../../src/wire/message.ts";
import { writeRegionDescriptor } from "../../src/wire/region-descriptor.ts";
import { isOverNet } from "../matrix/over-net.ts";
import { Attacker, bodyOf } from "./support/attacker.ts";
import { methodNumber, Victim } from "./support/victim.ts";

const id = (generation: number, slot: number): number => ((generation << 20) | slot) >>> 0;
const hex = (text: string): Uint8Array => Uint8Array.from(Buffer.from(text.replaceAll(" ", ""), "hex"));

const request = (body: unknown, more: Partial<FrameSpec> = {}): FrameSpec => ({
  kind: frameKind.request,
  method: methodNumber("echo"),
  callId: id(1, 0),
  word: 5000,
  body,
  ...more,
});

/** A block of metadata of this length without entries. */
const metadataOfZeros = (bytes: number): Uint8Array => {
  const block = Buffer.alloc(bytes);
  block.writeUInt16LE(bytes, 0);
  return block;
};

/** A message of a live session, changed by hand. */
type Forgery = (attacker: Attacker) => Uint8Array;

const changed =
  (change: (view: DataView, bytes: Uint8Array) => void, ...frames: FrameSpec[]): Forgery =>
  (attacker) => {
    const bytes = attacker.message(...(frames.length > 0 ? frames : [request({ id: 1, text: "t" })]));
    change(new DataView(bytes.buffer), bytes);
    return bytes;
  };

const framed =
  (...frames: FrameSpec[]): Forgery =>
  (attacker) =>
    attacker.message(...frames);

const rendezvous = (bytes: number, key = 1n): Uint8Array => {
  const body = new Uint8Array(24);
  writeRendezvous(new DataView(body.buffer), 0, { key, address: 0n, bytes });
  return body;
};

const proto = `a9${Buffer.from("__proto__").toString("hex")}`;

const forgeries: Record<string, readonly [Forgery, string]> = {
  "a wrong magic byte": [
    changed((view) => view.setUint8(0, 0xca)),
    "message does not begin with the magic byte",
  ],
  "a wrong header version": [changed((view) => view.setUint8(1, 9)), "message has version 9"],
  "a length beyond the message": [
    changed((view) => view.setUint32(4, 10_000, true)),
    "message says 10000 bytes",
  ],
  "a length of nothing": [changed((view) => view.setUint32(4, 0, true)), "message says 0 bytes"],
  "a frame too few": [
    changed((view) => view.setUint16(2, 0, true)),
    "message does not end with its last frame",
  ],
  "frames that are not there": [
    changed((view) => view.setUint16(2, 0xffff, true)),
    "frame header is cut off",
  ],
  "frame kind 0": [changed((view) => view.setUint8(messageHeaderBytes, 0)), "frame kind 0 is unknown"],
  "frame kind 255": [changed((view) => view.setUint8(messageHeaderBytes, 255)), "frame kind 255 is unknown"],
  "unknown flags": [
    changed((view) => view.setUint8(messageHeaderBytes + 1, 0x80)),
    "frame has unknown flags 0x80",
  ],
  "metadata that is cut off": [
    framed(request(hex("10 00 01 00"), { flags: frameFlag.metadata })),
    "metadata of 16 bytes runs past the end of its frame",
  ],
  "metadata without a block": [
    framed(request(undefined, { flags: frameFlag.metadata })),
    "metadata has 0 bytes, less than its header",
  ],
  "metadata beyond its limit": [
    framed(request(metadataOfZeros(8200), { flags: frameFlag.metadata })),
    "metadata of 8200 bytes exceeds the limit of 8192",
  ],
  "metadata with a line feed": [
    framed(request(hex("10 00 01 00 01 00 01 00 61 0a 00 00 00 00 00 00"), { flags: frameFlag.metadata })),
    "metadata has a control character in a value",
  ],
  "metadata behind an identity that is cut off": [
    framed(request(new Uint8Array(31), { flags: frameFlag.metadata | frameFlag.identity })),
    "call identity has 31 bytes, not 32",
  ],
  "metadata on a cancel": [
    framed({
      kind: frameKind.cancel,
      callId: id(1, 0),
      flags: frameFlag.metadata,
      body: hex("08 00 00 00 00 00 00 00"),
    }),
    "frame kind 7 may not have metadata",
  ],
  "a body beyond the message": [
    changed((view) => view.setUint32(messageHeaderBytes + 8, 0xffff_ffff, true)),
    "runs past the end of its message",
  ],
  "a body that is shorter than its frame": [
    changed((view) => view.setUint32(messageHeaderBytes + 8, 1, true)),
    "body cannot be decoded",
  ],
  "a number that was used before": [
    (attacker) => {
      attacker.number--;
      return attacker.message(request({ id: 1, text: "t" }));
    },
    "message has a number that was used before",
  ],
  "no number": [
    changed((view) => view.setUint32(numberOffset, 0, true)),
    "message has a number that was used before",
  ],
  "a hello inside the session": [
    framed({ kind: frameKind.hello, body: {} }),
    "frame kind 1 arrived inside a session",
  ],
  "a welcome": [framed({ kind: frameKind.welcome, body: {} }), "a second welcome came"],
  "a service table that is none": [
    framed({ kind: frameKind.services, body: 7 }),
    "greeting has no service table",
  ],
  "a health that is none": [
    framed({ kind: frameKind.services, body: { hea: [1, [["a.v1"]]] } }),
    "greeting has a malformed health",
  ],
  "two service tables": [
    framed({ kind: frameKind.services, body: [] }, { kind: frameKind.services, body: [] }),
    "an unexpected service table arrived",
  ],
  "a call id beyond the limit": [
    framed(request({}, { callId: id(1, 0xfffff) })),
    "is beyond the 4096 granted",
  ],
  "call id 0": [framed(request({}, { callId: 0 })), "call id 0 has generation 0"],
  "a call id in use": [
    framed(request(1, { method: methodNumber("wait") }), request(1, { method: methodNumber("wait") })),
    "call id 1048576 is in use",
  ],
  "no credits": [
    framed({ kind: frameKind.credits, word: 0 }),
    "0 credits are not between 1 and the 100 it takes at most",
  ],
  "more credits than it has slots": [
    framed({ kind: frameKind.credits, word: 101 }),
    "101 credits are not between 1 and the 100 it takes at most",
  ],
  "a pulled body that cannot be": [
    framed({ kind: frameKind.pulled, word: 9 }),
    "pulled has the unknown word 9 for call 0",
  ],
  "a body read that nobody offered": [
    framed({ kind: frameKind.pulling, word: 1 }),
    "pulling counts 1 bytes, and 0 were offered",
  ],
  "a body of which nothing is read": [
    framed({ kind: frameKind.pulling, callId: id(1, 0), word: 0 }),
    "pulling counts no bytes",
  ],
  "a depth bomb": [framed(request(new Uint8Array(10_000).fill(0x91))), "nesting is deeper than 100"],
  "a map depth bomb": [framed(request(hex(`${"81a161".repeat(3000)}c0`))), "nesting is deeper than 100"],
  "an array of four billion": [
    framed(request(hex("dd ffffffff"))),
    "collection of 4294967295 values has 0 bytes",
  ],
  "a map of four billion": [
    framed(request(hex("df ffffffff"))),
    "collection of 8589934590 values has 0 bytes",
  ],
  "a string of four billion": [framed(request(hex("db ffffffff"))), "value is cut off"],
  "binary of four billion": [framed(request(hex("c6 ffffffff"))), "value is cut off"],
  "an extension of four billion": [framed(request(hex("c9 ffffffff 74 01"))), "value is cut off"],
  "the key __proto__": [
    framed(request(hex(`81 ${proto} 81 a8 706f6c6c75746564 c3`))),
    "map key __proto__ is not allowed",
  ],
  "the key __proto__ deep inside": [
    framed(request(hex(`81 a161 91 82 a162 01 ${proto} 80`))),
    "map key __proto__",
  ],
  "a set of numbers that may all collide": [
    framed(request(hex(`d47300 dc2001 ${"01".repeat(8193)}`))),
    "cost more than 67108864 steps",
  ],
  "a reserved byte": [framed(request(hex("c1"))), "byte 0xc1 begins no value"],
  "a record of another dialect": [framed(request(hex("d4 72 40 91 a161 01"))), "extension 0x72 is unknown"],
  "a bundle of strings of another dialect": [
    framed(request(hex("d6 62 00000004 c0"))),
    "extension 0x62 is unknown",
  ],
  "a reference of another dialect": [framed(request(hex("d6 70 00000001"))), "extension 0x70 is unknown"],
  "two values": [framed(request(hex("01 02"))), "1 bytes follow the value"],
  "a region without access": [
    framed(
      request(hex(`d8 7d 01 ${"00".repeat(15)}`), { method: methodNumber("fill"), flags: frameFlag.grants }),
    ),
    "region descriptor has access 0",
  ],
  "a region in a request that grants none": [
    framed(request(hex(`d8 7d 01 01 ${"00".repeat(14)}`), { method: methodNumber("fill") })),
    "a region arrived in a request that grants none",
  ],
  "a cancel with a flag of a request": [
    framed({ kind: frameKind.cancel, callId: id(1, 0), flags: frameFlag.grants }),
    "frame kind 7 has flags of a request: 0x2",
  ],
  "a region that runs past the end of memory": [
    framed(
      request(
        hex(
          `81 a4 696e746f c7 28 7d 01020000 01000000 0001000000000000 ${"01".repeat(8)} ${"ff".repeat(8)} 0001000000000000`,
        ),
        { method: methodNumber("fill"), flags: frameFlag.grants },
      ),
    ),
    "region descriptor runs past the end of memory",
  ],
  "a rendezvous descriptor of the wrong length": [
    framed(request(new Uint8Array(23), { flags: frameFlag.rendezvous })),
    "rendezvous descriptor has 23 bytes",
  ],
  "a rendezvous body beyond every limit": [
    framed(request(rendezvous(2 ** 40), { flags: frameFlag.rendezvous })),
    "rendezvous body of 1099511627776 bytes exceeds maxBodyBytes",
  ],
  "an empty rendezvous body": [
    framed(request(rendezvous(0), { flags: frameFlag.rendezvous })),
    "rendezvous body is empty",
  ],
};

describe("a malformed message of a live session", () => {
  it.each(Object.keys(forgeries))(
    "with %s closes that session with a named error and harms nobody",
    async (name) => {
      const [forge, fault] = forgeries[name] as readonly [Forgery, string];
      const victim = await Victim.open();
      using attacker = await Attacker.at(victim.url);
      await attacker.connect();
      await attacker.send(forge(attacker));
      const goodbye = await attacker.next(frameKind.goodbye);
      expect(goodbye.word).toBe(13);
      expect((bodyOf(goodbye) as { m: string }).m).toContain(fault);
      expect(victim.faults).toHaveLength(1);
      expect(victim.faults[0]).toContain(fault);
      expect(victim.counters.malformed).toBe(1);
      // What it sends now is for a session that is no more.
      await attacker.sendFrames(request({ id: 1, text: "t" }));
      await attacker.until(() => victim.counters.strays === 1, "stray");
      expect(victim.counters.malformed).toBe(1);
      await victim.expectUnharmed();
    },
  );

  it("cut off at any byte is counted, and never answered", async () => {
    const victim = await Victim.open();
    using attacker = await Attacker.at(victim.url);
    await attacker.connect();
    const whole = () => attacker.message(request({ id: 1, text: "t" }));
    // Over net an empty message is no frame: it ends the connection.
    for (let cut = isOverNet ? 1 : 0; cut < whole().byteLength; cut++) {
      const before = victim.counters;
      await attacker.send(whole().slice(0, cut));
      await attacker.until(
        () => victim.counters.malformed === before.malformed + 1,
        `fault for ${cut} bytes`,
      );
      // Too short to name its session, it closes none.
      if (cut >= messageHeaderBytes) {
        await attacker.next(frameKind.goodbye);
        attacker.frames.length = 0;
        await attacker.connect();
        attacker.frames.length = 0;
      }
    }
    expect(attacker.frames.filter(({ kind }) => kind === frameKind.response)).toEqual([]);
    attacker.port.close();
    await victim.expectUnharmed();
  });
});

describe("a message longer than its receiver takes", () => {
  // Over net its frame is a fault, which ends the connection.
  it.skipIf(isOverNet)("is dropped, and ends its session when the next one comes", async () => {
    const victim = await Victim.open();
    using attacker = await Attacker.at(victim.url);
    await attacker.connect();
    await attacker.sendFrames(request(new Uint8Array(40_000)));
    await attacker.until(() => victim.counters.malformed === 1, "fault");
    expect(victim.engine.stats().sessions).toBe(2);
    await attacker.sendFrames({ kind: frameKind.ping });
    const goodbye = await attacker.next(frameKind.goodbye);
    expect([goodbye.word, bodyOf(goodbye)]).toEqual([
      14,
      { m: expect.stringContaining("1 of its messages were lost") },
    ]);
    expect(victim.counters).toMatchObject({ malformed: 1, messagesLost: 1 });
    attacker.port.close();
    await victim.expectUnharmed();
  });
});

it("a forged number adds no more to the count of lost messages than one break may", async () => {
  const victim = await Victim.open();
  using attacker = await Attacker.at(victim.url);
  await attacker.connect();
  attacker.number += 2 ** 31 - 2;
  await attacker.sendFrames({ kind: frameKind.ping });
  await attacker.next(frameKind.goodbye);
  expect(victim.counters).toMatchObject({ malformed: 0, messagesLost: 1024 });
  attacker.port.close();
  await victim.expectUnharmed();
});

describe("strays", () => {
  it("with a forged session or nonce are counted and have no effect", async () => {
    const victim = await Victim.open();
    using attacker = await Attacker.at(victim.url);
    const { session, nonce } = await attacker.connect();
    const forged: [number, bigint][] = [
      // The honest peer's session is the first one.
      [1, nonce],
      [1, 0n],
      [1, 0xffff_ffff_ffff_ffffn],
      [session, nonce ^ 1n],
      [session, nonce ^ (1n << 63n)],
      [session + 1, nonce],
      [0xffff_ffff, nonce],
    ];
    for (const [index, [toSession, withNonce]] of forged.entries()) {
      attacker.session = toSession;
      attacker.nonce = withNonce;
      await attacker.sendFrames({ kind: frameKind.goodbye, word: 14 }, request({ id: 1, text: "t" }));
      await attacker.until(() => victim.counters.strays === index + 1, "stray");
    }
    expect([victim.counters.malformed, victim.engine.stats().sessions]).toEqual([0, 2]);
    attacker.port.close();
    await victim.expectUnharmed();
  });
});

describe("forged regions", () => {
  it("fail their call alone, whatever key, place, length and access they claim", async () => {
    const victim = await Victim.open();
    using attacker = await Attacker.at(victim.url);
    await attacker.connect();
    const memory = attacker.port.register(new ArrayBuffer(64), 0, 64, 1 | 2);
    const readOnly = attacker.port.register(new ArrayBuffer(64), 0, 64, 1);
    const claims = [
      { key: 0xdeadn, address: 0n, bytes: 64, access: 3 },
      { key: memory.key, address: 0n, bytes: 65, access: 3 },
      { key: memory.key, address: 60n, bytes: 64, access: 3 },
      { key: memory.key, address: 2n ** 63n, bytes: 64, access: 3 },
      { key: memory.key, address: 0n, bytes: Number.MAX_SAFE_INTEGER, access: 3 },
      { key: readOnly.key, address: 0n, bytes: 64, access: 2 },
      { key: memory.key, address: 0n, bytes: 64, access: 1 },
    ];
    for (const [slot, claim] of claims.entries()) {
      const { access, ...segment } = claim;
      const descriptor = writeRegionDescriptor({ access, bytes: claim.bytes, segments: [segment] });
      const body = hex(`81 a4 696e746f c7 28 7d ${Buffer.from(descriptor).toString("hex")}`);
      const flags = frameFlag.grants;
      await attacker.sendFrames(request(body, { method: methodNumber("fill"), callId: id(1, slot), flags }));
    }
    await attacker.until(
      () => attacker.frames.filter(({ kind }) => kind === frameKind.error).length === claims.length,
      "errors",
    );
    expect(attacker.frames.some(({ kind }) => kind === frameKind.response)).toBe(false);
    expect(victim.counters).toMatchObject({ malformed: 0, requestsFailed: claims.length, bytesPut: 0 });
    attacker.port.close();
    await victim.expectUnharmed();
  });

  it("are refused in the form of a rendezvous body that lies nowhere", async () => {
    const victim = await Victim.open();
    using attacker = await Attacker.at(victim.url);
    await attacker.connect();
    await attacker.sendFrames(request(rendezvous(100_000, 0xbadn), { flags: frameFlag.rendezvous }));
    const error = await attacker.next(frameKind.error);
    expect(error.callId).toBe(id(1, 0));
    expect(attacker.frames.some(({ kind }) => kind === frameKind.pulled)).toBe(true);
    attacker.port.close();
    await victim.expectUnharmed();
  });
});

describe("a peer that keeps to the form and not to the rules", () => {
  it("cannot make answers pile up that it never pulls", async () => {
    const victim = await Victim.open();
    using attacker = await Attacker.at(victim.url);
    await attacker.connect();
    const long = (generation: number) =>
      request(undefined, { method: methodNumber("long"), callId: id(generation, 0) });
    await attacker.sendFrames(long(1));
    await attacker.next(frameKind.response);
    expect(victim.engine.stats().ports[0]?.regions).toBe(1);
    await attacker.sendFrames(long(2));
    const goodbye = await attacker.next(frameKind.goodbye);
    expect((bodyOf(goodbye) as { m: string }).m).toContain("the last answer in its slot was not pulled");
    attacker.port.close();
    await victim.expectUnharmed();
  });

  it("leaves nothing behind when it dies with calls open and answers not pulled", async () => {
    const victim = await Victim.open();
    using attacker = await Attacker.at(victim.url);
    await attacker.connect();
    for (let slot = 0; slot < 50; slot++) {
      await attacker.sendFrames(request(1, { method: methodNumber("wait"), callId: id(1, slot) }));
      await attacker.sendFrames(
        request(undefined, { method: methodNumber("long"), callId: id(1, 100 + slot) }),
      );
    }
    await attacker.until(
      () => attacker.frames.filter(({ kind }) => kind === frameKind.response).length === 50,
      "answers",
    );
    expect(victim.engine.stats()).toMatchObject({ deadlines: expect.any(Number) });
    attacker.port.close();
    await victim.expectUnharmed();
  });
});
