import { describe, expect, it } from "vitest";
import { access } from "../../src/fabric/port.ts";
import type { SentFrame } from "../../src/session/connection/fake-port.test-support.ts";
import type { FrameSpec } from "../../src/session/connection/fake-services.test-support.ts";
import { encode } from "../../src/wire/encode-value.ts";
import { frameFlag, frameKind, writeRendezvous } from "../../src/wire/frame.ts";
import { Attacker, bodyOf } from "./support/attacker.ts";
import { methodNumber, Victim } from "./support/victim.ts";

const id = (generation: number, slot: number): number => ((generation << 20) | slot) >>> 0;

/** An array of `count` times the same bytes: each byte may become an object. */
function bomb(count: number, part: readonly number[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(5 + count * part.length);
  bytes[0] = 0xdd;
  new DataView(bytes.buffer).setUint32(1, count);
  for (let i = 0; i < count; i++) bytes.set(part, 5 + i * part.length);
  return bytes;
}

const emptyMap = [0x80];
/** A map of one integer key, for which V8 makes an array of 12 KiB. */
const farIndex = [0x81, 0xcd, 0x03, 0xe8, 0x01];

/** A frame whose body lies in the attacker's memory. */
function offered(attacker: Attacker, body: Uint8Array<ArrayBuffer>, frame: FrameSpec): FrameSpec {
  const { key } = attacker.port.register(body.buffer, 0, body.byteLength, access.remoteRead);
  const descriptor = new Uint8Array(24);
  writeRendezvous(new DataView(descriptor.buffer), 0, { key, address: 0n, bytes: body.byteLength });
  return { ...frame, flags: frameFlag.rendezvous, body: descriptor };
}

/** A request whose handler waits until it is cancelled, so that its input is held. */
const held = (slot: number): FrameSpec => ({
  kind: frameKind.request,
  method: methodNumber("wait"),
  callId: id(1, slot),
  word: 60_000,
});

describe("requests that become much memory", () => {
  it.each([
    ["empty maps", bomb(8_000_000, emptyMap)],
    ["maps of far indices", bomb(400_000, farIndex)],
  ])("of %s are refused before they take it, one by one", async (_, body) => {
    // The attacker answers no ping, and decoding takes long.
    const victim = await Victim.open({ heartbeatMs: 60_000 });
    using attacker = await Attacker.at(victim.url);
    await attacker.connect();
    await attacker.sendFrames(...Array.from({ length: 8 }, (_, slot) => offered(attacker, body, held(slot))));
    const errors = () => attacker.frames.filter(({ kind }) => kind === frameKind.error);
    let peakBytes = 0;
    await attacker.until(() => {
      peakBytes = Math.max(peakBytes, process.memoryUsage().heapUsed);
      return errors().length === 8;
    }, "refusals");
    expect(bodyOf(errors()[0] as never)).toMatchObject({
      m: expect.stringContaining("limits.maxValueBytes of the server is reached"),
      n: true,
    });
    expect(errors()[0]?.word).toBe(8);
    expect(victim.counters.valuesTooLarge).toBe(8);
    expect(victim.engine.stats().decodedBytes).toBeLessThan(100_000);
    // Eight of them whole would take 4 GB and more.
    expect(peakBytes).toBeLessThan(1_000_000_000);
    // It is no fault of form: its session goes on.
    await attacker.sendFrames({ ...held(20), method: methodNumber("echo"), body: { id: 1, text: "t" } });
    await attacker.next(frameKind.response);
    attacker.port.close();
    await victim.expectUnharmed();
  });

  it("together hold no more than their peer's share, leave a share to others, and give it back", async () => {
    const maxDecodedBytes = 16_000_000;
    const victim = await Victim.open({
      limits: { memoryBytes: 10 * maxDecodedBytes, maxValueBytes: 4_000_000 },
    });
    // About 1.4 MB each.
    const body = bomb(18_000, emptyMap);
    using first = await Attacker.at(victim.url);
    using second = await Attacker.at(victim.url);
    const counted: number[] = [];
    for (const attacker of [first, second]) {
      await attacker.connect();
      await attacker.sendFrames(
        ...Array.from({ length: 20 }, (_, slot) => offered(attacker, body, held(slot))),
      );
      await attacker.until(
        () => attacker.frames.filter(({ kind }) => kind === frameKind.pulled).length === 20,
        "pulls",
      );
      counted.push(victim.engine.stats().decodedBytes);
    }
    const [one = 0, both = 0] = counted;
    expect(one).toBeGreaterThan(maxDecodedBytes / 3);
    expect(one).toBeLessThan(maxDecodedBytes / 2 + 4_000_000);
    expect(both).toBeGreaterThan(one);
    expect(both).toBeLessThan(maxDecodedBytes);
    const refused = first.frames.find(({ kind }) => kind === frameKind.error);
    expect(bodyOf(refused as never)).toMatchObject({
      m: expect.stringContaining("share of the server's limits.maxDecodedBytes 16000000"),
      a: 20,
      n: true,
    });
    // Their bodies count as long as their inputs.
    expect(victim.engine.stats().pullingBytes).toBeGreaterThan(7 * body.byteLength);
    first.port.close();
    second.port.close();
    await victim.expectUnharmed();
    expect(victim.engine.stats()).toMatchObject({ pullingBytes: 0 });
    expect(victim.engine.stats().decodedBytes).toBeLessThan(10_000);
  });
});

describe("service tables that become much memory", () => {
  const table = (services: number, methods: number) =>
    Array.from({ length: services }, (_, s) => [
      `service.${s}`,
      Array.from({ length: methods }, (_, m) => `method_${s}_${m}`),
    ]);

  it("end the sessions of peers without room, and count for as long as the others live", async () => {
    const maxDecodedBytes = 64_000_000;
    const victim = await Victim.open({ limits: { memoryBytes: 10 * maxDecodedBytes } });
    const body = Uint8Array.from(encode(table(4096, 15)));
    const attackers = await Promise.all(Array.from({ length: 20 }, () => Attacker.at(victim.url)));
    for (const attacker of attackers) {
      await attacker.connect();
      await attacker.sendFrames(offered(attacker, body, { kind: frameKind.services }));
      await attacker.next(frameKind.pulled);
    }
    // A table is judged some time after its pull. The sessions that are left have theirs, but for the honest client's.
    const [one] = attackers as [Attacker];
    const { engine } = victim;
    const waiting = () => engine.peers().filter(({ services }) => services.length === 0).length - 1;
    await one.until(() => waiting() === 0, "judgement");
    const ended = attackers.length - (engine.peers().length - 1);
    expect(ended).toBeGreaterThan(5);
    expect(ended).toBeLessThan(18);
    let goodbye: SentFrame | undefined;
    for (let at = 0; goodbye === undefined; at++) {
      const attacker = attackers[at % attackers.length] as Attacker;
      await attacker.turn();
      goodbye = attacker.frames.find(({ kind }) => kind === frameKind.goodbye);
    }
    expect([goodbye.word, (bodyOf(goodbye) as { m: string }).m]).toEqual([
      8,
      expect.stringContaining("takes more than its share of limits.maxDecodedBytes"),
    ]);
    expect(victim.engine.stats().decodedBytes).toBeLessThan(maxDecodedBytes);
    // A small table finds room whatever the others hold.
    using late = await Attacker.at(victim.url);
    await late.connect();
    await late.sendFrames({ kind: frameKind.services, body: table(10, 20) });
    await late.sendFrames({ ...held(0), method: methodNumber("echo"), body: { id: 1, text: "t" } });
    await late.next(frameKind.response);
    for (const attacker of [late, ...attackers]) attacker.port.close();
    await victim.expectUnharmed();
    expect(victim.engine.stats().decodedBytes).toBeLessThan(10_000);
  });
});

describe("names of methods", () => {
  it("that are digits, which may share a bucket of a hash table, are refused", async () => {
    const victim = await Victim.open();
    using attacker = await Attacker.at(victim.url);
    await attacker.connect();
    const methods = Array.from({ length: 500 }, (_, i) => String(65_536 * (i + 1)));
    await attacker.sendFrames({ kind: frameKind.services, body: [["s", methods]] });
    const goodbye = await attacker.next(frameKind.goodbye);
    expect((bodyOf(goodbye) as { m: string }).m).toContain("greeting has a malformed method in service s");
    attacker.port.close();
    await victim.expectUnharmed();
  });
});
