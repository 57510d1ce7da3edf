import { clientStream, duplexStream, implement, serverStream, service } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { FrameSpec } from "../../src/session/connection/fake-services.test-support.ts";
import { frameFlag, frameKind, writeRendezvous } from "../../src/wire/frame.ts";
import { methodKindNumbers } from "../../src/wire/handshake.ts";
import { writeMetadata } from "../../src/wire/metadata/metadata-block.ts";
import { deferred, failure } from "../matrix/wait.ts";
import { Attacker, bodyOf } from "./support/attacker.ts";
import { hostileServer } from "./support/hostile-server.ts";
import { targets, Victim } from "./support/victim.ts";

const Streams = service("streams.v1", {
  down: serverStream({ input: z.unknown(), output: z.unknown() }),
  up: clientStream({ items: z.unknown(), output: z.number(), window: { items: 4, bytes: 4096 } }),
  both: duplexStream({ items: z.unknown(), output: z.unknown() }),
});

const callId = (1 << 20) >>> 0;
const targetMethods = 7;
const number = { down: targetMethods, up: targetMethods + 1, both: targetMethods + 2, unary: 5 };
type Method = keyof typeof number;

const request = (method: Method, more: Partial<FrameSpec> = {}): FrameSpec => ({
  kind: frameKind.request,
  method: number[method],
  callId,
  word: 60_000,
  body: null,
  ...more,
});
const frame = (kind: keyof typeof frameKind, more: Partial<FrameSpec> = {}): FrameSpec => ({
  kind: frameKind[kind],
  callId,
  ...more,
});
const rendezvous = (bytes: number): Uint8Array => {
  const body = new Uint8Array(24);
  writeRendezvous(new DataView(body.buffer), 0, { key: 1n, address: 0n, bytes });
  return body;
};

/** Takes no items for as long as the test runs. */
function idleStreams() {
  const gate = deferred();
  const implementation = implement(Streams, {
    async down() {
      await gate.promise;
      return [];
    },
    async up() {
      await gate.promise;
      return 0;
    },
    async both() {
      await gate.promise;
      return [];
    },
  });
  return { gate, implementation };
}

/** What a caller does wrong, and the fault. */
const wrongs: Record<string, readonly [Method, FrameSpec[], string]> = {
  "an input out of order": ["up", [frame("input", { word: 1, body: 1 })], "came, 0 was next"],
  "inputs beyond the credits of items": [
    "up",
    [0, 1, 2, 3, 4].map((word) => frame("input", { word, body: 1 })),
    "item 4 of call 1048576 is beyond the credits",
  ],
  "inputs beyond the credits of bytes": [
    "up",
    [frame("input", { word: 0, body: "x".repeat(5000) }), frame("input", { word: 1, body: 1 })],
    "item 1 of call 1048576 is beyond the credits",
  ],
  "an input after the end": [
    "up",
    [frame("inputsEnd", { word: 0 }), frame("input", { word: 0, body: 1 })],
    "came after the end",
  ],
  "an end of more inputs than came": ["up", [frame("inputsEnd", { word: 2 })], "end after 2, 0 came"],
  "two ends": [
    "up",
    [frame("inputsEnd", { word: 0 }), frame("inputsEnd", { word: 0 })],
    "has no items that could end",
  ],
  "an input for a server stream": ["down", [frame("input", { word: 0, body: 1 })], "takes no items"],
  "an end of inputs for a server stream": ["down", [frame("inputsEnd")], "has no items that could end"],
  "credits for a client stream": ["up", [frame("outputCredits", { method: 1, word: 1 })], "sends no items"],
  "an input for a unary call": ["unary", [frame("input", { word: 0, body: 1 })], "is not a stream"],
  "credits for a unary call": ["unary", [frame("outputCredits", { method: 1 })], "is not a stream"],
  "an output of its own call": ["both", [frame("output", { body: 1 })], "which is not open"],
  "credits of inputs of its own call": ["both", [frame("inputCredits", { method: 1 })], "which is not open"],
  "credits that overflow": [
    "both",
    Array.from({ length: 257 }, () => frame("outputCredits", { method: 1, word: 0xffff_ffff })),
    "overflow",
  ],
  "an input that is no value": [
    "up",
    [frame("input", { word: 0, body: Uint8Array.of(0xc1) })],
    "body cannot be decoded",
  ],
  "a descriptor of the wrong length": [
    "up",
    [frame("input", { word: 0, flags: frameFlag.rendezvous, body: new Uint8Array(8) })],
    "rendezvous descriptor has 8 bytes",
  ],
  "a rendezvous input without length": [
    "up",
    [frame("input", { word: 0, flags: frameFlag.rendezvous, body: rendezvous(0) })],
    "rendezvous body is empty",
  ],
};

describe("a caller of streams that keeps to nothing", () => {
  it.each(Object.keys(wrongs))(
    "by %s loses its session with a named error and harms nobody",
    async (name) => {
      const [method, frames, fault] = wrongs[name] as (typeof wrongs)[string];
      const { gate, implementation } = idleStreams();
      const victim = await Victim.open({ serve: [targets, implementation] });
      using attacker = await Attacker.at(victim.url);
      await attacker.connect();
      await attacker.sendFrames(request(method), frame("ping", { callId: 0 }));
      // The handler has started, and has granted what it takes.
      await attacker.next(method === "up" || method === "both" ? frameKind.inputCredits : frameKind.pong);
      await attacker.sendFrames(...frames);
      const goodbye = await attacker.next(frameKind.goodbye);
      expect((bodyOf(goodbye) as { m: string }).m).toContain(fault);
      expect(victim.faults).toEqual([expect.stringContaining(fault)]);
      gate.resolve();
      await attacker.until(() => victim.engine.stats().streamBytes === 0, "windows given back");
      await victim.expectUnharmed();
    },
  );

  it("by items before the handler takes any loses its session", async () => {
    const { gate, implementation } = idleStreams();
    const victim = await Victim.open({ serve: [targets, implementation] });
    using attacker = await Attacker.at(victim.url);
    await attacker.connect();
    await attacker.sendFrames(request("up"), frame("cancel"), frame("input", { word: 0, body: 1 }));
    await attacker.next(frameKind.error);
    // Its call has ended: what comes now is for nobody.
    await attacker.sendFrames(
      frame("input", { word: 0, body: 1 }),
      frame("inputsEnd", { word: 1 }),
      frame("outputCredits", { method: 1 }),
      frame("pulled", { word: 2 }),
    );
    await attacker.sendFrames(frame("ping", { callId: 0 }));
    await attacker.next(frameKind.pong);
    expect(victim.faults).toEqual([]);
    gate.resolve();
    attacker.port.close();
    await victim.expectUnharmed();
  });

  it("by opening streams that it never reads holds no more than their windows", async () => {
    const Flood = service("streams.v1", {
      down: serverStream({ input: z.unknown(), output: z.unknown() }),
    });
    let made = 0;
    const victim = await Victim.open({
      serve: [
        targets,
        implement(Flood, {
          *down() {
            for (;;) {
              made++;
              yield new Uint8Array(1000);
            }
          },
        }),
      ],
    });
    using attacker = await Attacker.at(victim.url);
    await attacker.connect();
    for (let slot = 0; slot < 50; slot++)
      await attacker.sendFrames(request("down", { callId: callId | slot }), {
        kind: frameKind.outputCredits,
        callId: callId | slot,
        method: 10,
        word: 5000,
      });
    await attacker.until(
      () => attacker.frames.filter(({ kind }) => kind === frameKind.output).length === 250,
      "items",
    );
    // Ten items were granted, and 5000 bytes: the fifth item takes them below zero.
    expect(made).toBe(250);
    attacker.port.close();
    await victim.expectUnharmed();
  });
});

const table = [
  [
    "streams.v1",
    [
      ["down", methodKindNumbers.serverStream],
      ["up", methodKindNumbers.clientStream],
      ["both", methodKindNumbers.duplexStream],
    ],
  ],
] as const;

const block = writeMetadata({ a: "1" }) as Buffer;
const headers = (more: Partial<FrameSpec> = {}) => frame("headers", { body: block, ...more });

describe("a server of streams that keeps to nothing", () => {
  const faults: Record<string, readonly [FrameSpec[], string]> = {
    "an output out of order": [
      [frame("output", { word: 7, body: 1 })],
      "item 7 of call 1048576 came, 0 was next",
    ],
    "outputs beyond the credits": [
      [0, 1, 2].map((word) => frame("output", { word, body: "x".repeat(3000) })),
      "item 2 of call 1048576 is beyond the credits",
    ],
    "an end of fewer items than came": [
      [frame("output", { word: 0, body: 1 }), frame("response", { word: 0 })],
      "end after 0, 1 came",
    ],
    "an item after the answer": [
      [frame("response", { word: 0 }), frame("output", { word: 0, body: 1 })],
      "which is not open",
    ],
    "headers twice": [[headers(), headers()], "headers of call 1048576 are not expected"],
    "headers behind an item": [
      [frame("output", { word: 0, body: 1 }), headers()],
      "headers of call 1048576 are not expected",
    ],
    "headers that are no metadata": [
      [frame("headers", { body: Uint8Array.of(1, 2) })],
      "less than its header",
    ],
    "headers with bytes behind them": [
      [frame("headers", { body: Buffer.concat([block, Buffer.alloc(8)]) })],
      "have bytes behind them",
    ],
    "headers for a call that is not open": [[headers({ callId: callId | 9 })], "which is not open"],
    "credits for inputs that there are none of": [[frame("inputCredits", { method: 1 })], "sends no items"],
    "an item for a call that it was not asked": [
      [frame("output", { callId: callId | 9, body: 1 })],
      "which is not open",
    ],
  };

  it.each(Object.keys(faults))("by %s loses its session", async (name) => {
    const [frames, fault] = faults[name] as (typeof faults)[string];
    const { client, peer, server } = await hostileServer(table);
    const stream = peer.client(Streams).down(null, { window: { items: 8, bytes: 4096 } });
    await server.next(frameKind.outputCredits);
    await server.sendFrames(...frames);
    const goodbye = await server.next(frameKind.goodbye);
    expect((bodyOf(goodbye) as { m: string }).m).toContain(fault);
    // Nothing was read so far, so nothing was granted again.
    const reading = failure(
      (async () => {
        for await (const _ of stream);
        // The answer may have come before the fault.
        throw await failure(peer.client(Streams).up([]));
      })(),
    );
    expect(["internal", "unavailable"]).toContain((await reading).code);
    expect(client.stats().counters.malformed).toBe(1);
    expect(client.stats()).toMatchObject({ streamBytes: 0, calls: { out: 0 } });
  });
});
