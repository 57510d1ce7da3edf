import { describe, expect, it } from "vitest";
import { ByteBudget } from "../../base/flow/byte-budget.ts";

import { decodeAt } from "../../wire/decode-value.ts";
import { EncodeError } from "../../wire/extension.ts";
import {
  frameFlag,
  frameHeaderBytes,
  frameKind,
  type RendezvousBody,
  readRendezvous,
  rendezvousBytes,
} from "../../wire/frame.ts";
import { messageHeaderBytes, mostNumber } from "../../wire/message.ts";
import { FakePort, type SentFrame } from "../connection/fake-port.test-support.ts";
import { Outbox, type OutboxListener } from "./outbox.ts";

const head = (callId: number) => ({ kind: frameKind.response, method: 0, callId, word: 0 });
const noOffer = (): RendezvousBody => {
  throw new EncodeError("nothing is offered here");
};
const decoded = ({ body }: SentFrame): unknown => decodeAt(body, 0, body.byteLength);

function setUp({
  slots = 4,
  slotBytes = 4096,
  maxQueuedBytes = 1000,
  maxWaitingBytes = 100_000,
  maxInAll = 1e9,
} = {}) {
  const port = new FakePort(slots, slotBytes);
  const told = {
    dirty: 0,
    rooms: 0,
    failed: [] as number[],
    drained: 0,
    overrun: [] as number[],
    isWatched: true,
    bodyLimit: 2 ** 29,
    watches: 0,
  };
  const counters = { messagesSent: 0, framesSent: 0 };
  const progress = { wake() {}, flushSoon: () => void told.dirty++, goOn() {} };
  const listener: OutboxListener = {
    onRoom: () => void told.rooms++,
    onSendFailed: (status) => void told.failed.push(status),
    get bodyLimit() {
      return told.bodyLimit;
    },
    get isWatched() {
      return told.isWatched;
    },
    watch: () => void told.watches++,
    counters,
    onDrained: () => void told.drained++,
    onOverrun: (bytes) => void told.overrun.push(bytes),
  };
  const share = new ByteBudget(maxInAll).share();
  const outbox = new Outbox(port, 7, progress, listener, maxQueuedBytes, maxWaitingBytes, share);
  outbox.addressTo({ session: 5, nonce: 0xabcd_0000_ef01n, messageBytes: slotBytes });
  return { port, told, counters, outbox, share };
}

describe("outbox", () => {
  it("takes any length that a peer states for its messages, and keeps to its own slots", () => {
    for (const messageBytes of [4096, 2 ** 31 - 1, 2 ** 31, 2 ** 31 + 512, 2 ** 32 - 1]) {
      const { outbox } = setUp();
      const before = outbox.maxBodyBytes;
      outbox.addressTo({ session: 5, nonce: 6n, messageBytes });
      expect([messageBytes, outbox.maxBodyBytes]).toEqual([messageBytes, before]);
    }
    const { outbox } = setUp();
    outbox.addressTo({ session: 5, nonce: 6n, messageBytes: 1031 });
    expect(outbox.maxBodyBytes).toBe(1024 - messageHeaderBytes - frameHeaderBytes);
  });

  it("numbers messages from 1, and after the highest number from 1 again", () => {
    const { port, outbox } = setUp();
    const send = () => {
      outbox.bare(head(1));
      outbox.flush();
    };
    send();
    outbox.lastNumber = mostNumber - 1;
    send();
    send();
    expect(port.sent.map(({ number }) => number)).toEqual([1, mostNumber, 1]);
  });

  it("posts nothing more to a peer that takes nothing, until all has left", () => {
    const { port, outbox } = setUp();
    const send = (callId: number) => {
      outbox.bare(head(callId));
      outbox.flush();
    };
    send(1);
    send(2);
    outbox.onParked();
    send(3);
    port.complete(1);
    outbox.flush();
    expect(port.sent).toHaveLength(2);
    port.complete();
    outbox.flush();
    expect(port.frames.map(({ callId }) => callId)).toEqual([1, 2, 3]);
  });

  it("has its peer watched from the moment it holds anything, a message or a frame without a slot", () => {
    const { port, told, outbox } = setUp({ slots: 1 });
    told.isWatched = false;
    outbox.bare(head(1));
    expect(told.watches).toBe(0);
    outbox.flush();
    expect([told.watches, outbox.isHolding]).toEqual([1, true]);
    port.complete();
    expect(outbox.isHolding).toBe(false);
    expect(port.takeSlot()).toBe(0);
    outbox.bare(head(2));
    expect([told.watches, outbox.isHolding]).toEqual([2, true]);
    told.isWatched = true;
    outbox.bare(head(3));
    expect(told.watches).toBe(2);
  });

  it("sends the frames of one turn in one message, named as the peer asked", () => {
    const { port, told, counters, outbox } = setUp();
    outbox.bare({ kind: frameKind.cancel, method: 0, callId: 9, word: 0 });
    outbox.value({ kind: frameKind.request, method: 3, callId: 10, word: 77 }, { a: 1 }, noOffer);
    outbox.raw(head(11), 1, Uint8Array.of(1, 2, 3));
    expect([port.sent.length, told.dirty]).toEqual([0, 1]);
    expect(outbox.flush()).toBe(true);
    expect(port.sent).toHaveLength(1);
    expect(port.sent[0]).toMatchObject({ address: 7, session: 5, nonce: 0xabcd_0000_ef01n });
    const [cancel, request, raw] = port.frames as [SentFrame, SentFrame, SentFrame];
    expect(cancel).toMatchObject({ kind: 7, callId: 9, word: 0, flags: 0 });
    expect(request).toMatchObject({ kind: 4, method: 3, callId: 10, word: 77, flags: 0 });
    expect(decoded(request)).toEqual({ a: 1 });
    expect(raw).toMatchObject({ callId: 11, flags: 1, body: Uint8Array.of(1, 2, 3) });
    expect(counters).toEqual({ messagesSent: 1, framesSent: 3 });
  });

  it("offers what is longer than the peer takes, which refuses it, though it fits a message", () => {
    const { port, told, outbox } = setUp();
    told.bodyLimit = 100;
    const refused = (body: Uint8Array) => {
      throw new EncodeError(`${body.byteLength} bytes`);
    };
    expect(() => outbox.value(head(1), "x".repeat(99), refused)).toThrow("101 bytes");
    outbox.value(head(2), "x".repeat(98), noOffer);
    // Frames about the session have no such limit.
    outbox.value(head(0), "x".repeat(99), noOffer);
    outbox.flush();
    expect(port.frames.map(({ callId }) => callId)).toEqual([2, 0]);
  });

  it("never sends bytes of a former message as padding", () => {
    const { port, outbox } = setUp({ slots: 1 });
    for (let length = 0; length < 24; length++) {
      outbox.raw(head(1), 0, new Uint8Array(length).fill(0xaa));
      outbox.value(head(2), "x".repeat(length), noOffer);
      outbox.flush();
      // takeApart has checked the padding.
      port.complete();
    }
    expect(port.frames).toHaveLength(48);
  });

  it("holds what comes after a frame that must not be overtaken, and sends it in order", () => {
    const { port, outbox } = setUp();
    outbox.bare(head(1));
    outbox.hold();
    outbox.bare(head(2));
    outbox.value(head(3), "x", noOffer);
    outbox.flush();
    expect(port.frames.map(({ callId }) => callId)).toEqual([1]);
    outbox.resume();
    outbox.bare(head(4));
    outbox.flush();
    expect(port.frames.map(({ callId }) => callId)).toEqual([1, 2, 3, 4]);
    expect(outbox.queuedBytes).toBe(0);
  });

  it("holds behind what finds no slot, and bounds it as all that waits", () => {
    const { port, told, outbox } = setUp({ slots: 1, maxWaitingBytes: 200 });
    outbox.bare(head(1));
    outbox.flush();
    outbox.bare(head(2));
    outbox.hold();
    outbox.bare(head(3));
    port.complete();
    outbox.flush();
    expect(port.frames.map(({ callId }) => callId)).toEqual([1, 2]);
    outbox.raw(head(4), 0, new Uint8Array(300));
    expect(told.overrun).toHaveLength(1);
    outbox.dropHeld();
    expect(outbox.queuedBytes).toBe(0);
    port.complete();
    outbox.bare(head(5));
    outbox.flush();
    expect(port.frames.map(({ callId }) => callId)).toEqual([1, 2, 5]);
  });

  it("posts a full message and goes on in the next slot", () => {
    const { port, outbox } = setUp();
    const body = new Uint8Array(1000);
    for (let i = 1; i <= 10; i++) outbox.raw(head(i), 0, body);
    outbox.flush();
    expect(port.sent.map(({ frames }) => frames.length)).toEqual([4, 4, 2]);
    expect(port.frames.map((frame) => frame.callId)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  });

  it("posts a message as soon as it has as many frames as are worth waiting for", () => {
    const { port, outbox } = setUp();
    port.batchFrames = 3;
    for (let i = 1; i <= 7; i++) outbox.bare(head(i));
    expect(port.sent.map(({ frames }) => frames.length)).toEqual([3, 3]);
    outbox.flush();
    expect(port.frames).toHaveLength(7);
  });

  it("lets four times as many items share a message, as long as it stays short", () => {
    const { port, outbox } = setUp({ slotBytes: 16_384 });
    port.batchFrames = 3;
    const item = (word: number) => ({ kind: frameKind.output, method: 0, callId: 1, word });
    for (let i = 0; i < 13; i++) outbox.value(item(i), i, noOffer);
    expect(port.sent.map(({ frames }) => frames.length)).toEqual([12]);
    // With a call's frame, the message is as long as is worth waiting for.
    for (let i = 0; i < 2; i++) outbox.bare(head(i + 1));
    expect(port.sent.map(({ frames }) => frames.length)).toEqual([12, 3]);
    for (let i = 13; i < 20; i++) outbox.value(item(i), "x".repeat(400), noOffer);
    expect(port.sent.map(({ frames }) => frames.length)).toEqual([12, 3, 3, 3]);
  });

  it("lets as many one-way requests share a message as items", () => {
    const { port, outbox } = setUp({ slotBytes: 16_384 });
    port.batchFrames = 3;
    for (let i = 1; i <= 13; i++) outbox.value({ ...head(i), isOneWay: true }, i, noOffer);
    expect(port.sent.map(({ frames }) => frames.length)).toEqual([12]);
    for (let i = 14; i < 16; i++) outbox.value({ ...head(i), isOneWay: false }, i, noOffer);
    expect(port.sent.map(({ frames }) => frames.length)).toEqual([12, 3]);
  });

  it("keeps the order when slots run out, and sends the rest as they come back", () => {
    const { port, told, outbox } = setUp({ slots: 2 });
    for (let i = 1; i <= 40; i++) {
      if (i % 3 === 0) outbox.bare(head(i));
      else outbox.value(head(i), { i, fill: "x".repeat(i * 20) }, noOffer);
    }
    outbox.flush();
    expect(port.pending).toBe(2);
    expect(outbox.queuedBytes).toBeGreaterThan(0);
    for (let turn = 0; outbox.queuedBytes > 0; turn++) {
      expect(turn).toBeLessThan(20);
      expect(told.dirty).toBeGreaterThan(0);
      port.complete(1);
      outbox.flush();
    }
    outbox.flush();
    port.complete();
    expect(port.frames.map((frame) => frame.callId)).toEqual(Array.from({ length: 40 }, (_, i) => i + 1));
    expect([port.pending, port.freeSlots, outbox.isHolding]).toEqual([0, 2, false]);
  });

  it("posts at most sixteen messages at a time, so that others find slots", () => {
    const { port, outbox } = setUp({ slots: 40 });
    for (let i = 1; i <= 30; i++) {
      outbox.bare(head(i));
      outbox.flush();
    }
    expect([port.pending, port.freeSlots]).toEqual([16, 24]);
    port.complete();
    outbox.flush();
    expect(port.frames).toHaveLength(30);
  });

  it("is full from maxQueuedBytes on, and takes terminal frames still", () => {
    const { port, outbox } = setUp({ slots: 1, maxQueuedBytes: 64 });
    outbox.bare(head(1));
    outbox.flush();
    expect(outbox.full).toBe(false);
    for (let i = 2; i < 6; i++) outbox.bare(head(i));
    expect([outbox.full, outbox.queuedBytes]).toEqual([true, 64]);
    outbox.bare(head(6));
    port.complete();
    outbox.flush();
    expect(outbox.full).toBe(false);
    expect(port.frames).toHaveLength(6);
  });

  it("tells when a peer takes nothing, so that what waits is bounded", () => {
    const { told, outbox } = setUp({ slots: 1, maxWaitingBytes: 160 });
    outbox.bare(head(1));
    outbox.flush();
    for (let i = 0; i < 10; i++) outbox.bare(head(2));
    expect(told.overrun).toEqual([]);
    outbox.bare(head(2));
    expect(told.overrun).toEqual([176]);
  });

  it("lets one frame wait that says how things are now, however often it is said", () => {
    const { port, told, outbox } = setUp({ slots: 1 });
    const pong = (word: number) => ({ kind: frameKind.pong, method: 0, callId: 0, word });
    outbox.latest(pong(1));
    outbox.flush();
    for (let word = 2; word <= 100_000; word++) outbox.latest(pong(word));
    expect([outbox.queuedBytes, told.overrun]).toEqual([0, []]);
    outbox.hold();
    port.complete();
    outbox.flush();
    expect(port.frames.map(({ word }) => word)).toEqual([1]);
    outbox.resume();
    outbox.flush();
    port.complete();
    outbox.flush();
    expect(port.frames.map(({ word }) => word)).toEqual([1, 100_000]);
    expect([port.pending, port.freeSlots]).toEqual([0, 1]);
  });

  it("tells when what waits exceeds the peer's share of what may wait for all", () => {
    const { told, outbox, share } = setUp({ slots: 1, maxInAll: 8192 });
    outbox.bare(head(1));
    outbox.flush();
    // Two chunks of 2 KiB with 128 frames each are the half that a peer may have.
    for (let i = 0; i < 256; i++) outbox.bare(head(2));
    expect([told.overrun, share.bytes, outbox.queuedBytes]).toEqual([[], 4096, 4096]);
    outbox.bare(head(3));
    expect(told.overrun).toEqual([4112]);
    outbox.close();
    expect([share.bytes, outbox.queuedBytes]).toEqual([0, 0]);
  });

  it("counts the memory of what waits, long and short frames by turns", () => {
    const { outbox, share, port } = setUp({ slots: 1 });
    outbox.bare(head(1));
    outbox.flush();
    for (let i = 0; i < 4; i++) {
      outbox.raw(head(2), 0, new Uint8Array(2024));
      outbox.bare(head(3));
    }
    // A frame of 16 bytes after a long one has a chunk of its own.
    expect([share.bytes, outbox.queuedBytes]).toEqual([4 * (2040 + 2048), 4 * (2040 + 16)]);
    for (let turn = 0; outbox.queuedBytes > 0; turn++) {
      expect(turn).toBeLessThan(10);
      port.complete();
      outbox.flush();
    }
    expect(share.bytes).toBe(0);
  });

  it("tells of a send that failed", () => {
    const { port, told, outbox } = setUp();
    outbox.bare(head(1));
    outbox.flush();
    port.complete(1, 110);
    expect(told.failed).toEqual([110]);
  });

  it("takes a body of exactly what a message holds, and offers one byte more", () => {
    const room = 4096 - messageHeaderBytes - frameHeaderBytes;
    for (const bytes of [room - 1, room, room + 1]) {
      const { port, outbox } = setUp();
      const offered: Uint8Array[] = [];
      // A str 16 header is three bytes.
      const value = "x".repeat(bytes - 3);
      outbox.value(head(1), value, (body) => {
        offered.push(body.slice());
        return { key: 1n, address: 2n, bytes: body.byteLength };
      });
      outbox.flush();
      const [frame] = port.frames as [SentFrame];
      if (bytes <= room) {
        expect([offered.length, frame.flags, frame.body.byteLength]).toEqual([0, 0, bytes]);
        expect(decoded(frame)).toBe(value);
      } else {
        expect([offered[0]?.byteLength, frame.flags]).toEqual([bytes, frameFlag.rendezvous]);
        const view = new DataView(frame.body.buffer);
        expect(readRendezvous(view, 0, rendezvousBytes, 1e6)).toEqual({ key: 1n, address: 2n, bytes });
        expect(decodeAt(offered[0] as Uint8Array, 0, bytes)).toBe(value);
      }
    }
  });

  it("keeps to the peer's shorter messages", () => {
    const { port, outbox } = setUp({ slotBytes: 16_384 });
    outbox.addressTo({ session: 5, nonce: 6n, messageBytes: 4096 });
    for (let i = 1; i <= 8; i++) outbox.value(head(i), "x".repeat(1500), noOffer);
    outbox.value(head(9), "x".repeat(4000), noOffer);
    outbox.flush();
    port.complete();
    outbox.flush();
    for (const { bytes } of port.sent) expect(bytes.byteLength).toBeLessThanOrEqual(4096);
    expect(port.frames.map((frame) => frame.callId)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });

  it("reads the flags of regions after encoding", () => {
    const { port, outbox } = setUp();
    let flags = 0;
    const regions = {
      encodeRegion: () => new Uint8Array(32),
      decodeRegion: () => ({}),
      get flags() {
        return flags;
      },
    };
    const value = {
      get lends() {
        flags = frameFlag.grants;
        return 1;
      },
    };
    outbox.value(head(1), value, noOffer, regions);
    outbox.flush();
    expect(port.frames[0]?.flags).toBe(frameFlag.grants);
  });

  it("sends nothing and holds no slot after a value that cannot be encoded", () => {
    const { port, told, outbox } = setUp({ slots: 1 });
    const circular: unknown[] = [];
    circular.push(circular);
    expect(() => outbox.value(head(1), circular, noOffer)).toThrow(EncodeError);
    expect(() => outbox.value(head(1), "x".repeat(5000), noOffer)).toThrow("nothing is offered here");
    // A value that is not sent causes no flush.
    expect([port.sent.length, port.freeSlots, told.dirty]).toEqual([0, 1, 0]);
    outbox.flush();
    expect([port.sent.length, port.freeSlots]).toEqual([0, 1]);
    outbox.bare(head(2));
    expect(() => outbox.value(head(1), circular, noOffer)).toThrow(EncodeError);
    outbox.bare(head(3));
    outbox.flush();
    expect(port.frames.map((frame) => frame.callId)).toEqual([2, 3]);
  });

  it.each([
    ["in a message", 4],
    ["in what waits", 0],
  ])("keeps messages whole when a getter sends, flushes or encodes meanwhile, %s", (_, freeSlots) => {
    const { port, outbox } = setUp();
    const taken: number[] = [];
    for (let i = freeSlots; i < 4; i++) taken.push(port.takeSlot());
    let inner: unknown;
    const meddler = {
      before: "b",
      get meddling() {
        outbox.bare(head(2));
        outbox.flush();
        try {
          outbox.value(head(3), "inner", noOffer);
        } catch (error) {
          inner = error;
        }
        return "m";
      },
      after: "a".repeat(100),
    };
    outbox.bare(head(1));
    outbox.value(head(4), meddler, noOffer);
    outbox.bare(head(5));
    for (const slot of taken) port.returnSlot(slot);
    outbox.flush();
    outbox.flush();
    expect(inner).toBeInstanceOf(EncodeError);
    const byId = new Map(port.frames.map((frame) => [frame.callId, frame]));
    expect([...byId.keys()].sort()).toEqual([1, 2, 4, 5]);
    expect(decoded(byId.get(4) as SentFrame)).toEqual({ before: "b", meddling: "m", after: "a".repeat(100) });
    port.complete();
    expect(port.freeSlots).toBe(4);
  });

  it("gives its slot back once when a getter closes it", () => {
    const { port, outbox } = setUp({ slots: 2 });
    const closer = {
      get last() {
        outbox.close();
        expect(port.freeSlots).toBe(1);
        return 1;
      },
    };
    outbox.value(head(1), closer, noOffer);
    expect([port.freeSlots, port.sent.length]).toEqual([2, 0]);
  });

  it("drops the value that waits when a getter closes it, and gives back the memory", () => {
    const { outbox, port, share } = setUp({ slots: 0 });
    outbox.bare(head(1));
    const closer = {
      get last() {
        outbox.close();
        return "x".repeat(100);
      },
    };
    outbox.value(head(2), closer, noOffer);
    expect([outbox.queuedBytes, share.bytes, port.sent.length]).toEqual([0, 0, 0]);
  });

  it("lets a value wait that is longer than the one before, and one that is longer than a chunk", () => {
    const { outbox, port } = setUp({ slots: 1 });
    const slot = port.takeSlot();
    const values = ["a", "b".repeat(600), "c".repeat(1500), "d", { refused: () => 1 }, "e".repeat(3000), "f"];
    values.forEach((value, i) => {
      const send = () => outbox.value(head(i + 1), value, noOffer);
      if (typeof value === "string") send();
      else expect(send).toThrow(EncodeError);
    });
    port.returnSlot(slot);
    while (outbox.queuedBytes > 0) {
      outbox.flush();
      port.complete();
    }
    expect(port.frames.map(decoded)).toEqual(values.filter((value) => typeof value === "string"));
  });

  it("drops what has not been posted when it is closed, and tells when the last has left", () => {
    const { port, told, outbox } = setUp({ slots: 1 });
    outbox.bare(head(1));
    outbox.flush();
    outbox.bare(head(2));
    outbox.close();
    outbox.bare(head(3));
    outbox.value(head(4), { a: 1 }, noOffer);
    outbox.flush();
    expect([outbox.queuedBytes, told.drained]).toEqual([0, 0]);
    port.complete();
    expect([port.frames.length, told.drained, port.freeSlots]).toEqual([1, 1, 1]);
  });

  it("gives back the slot of an open message when it is closed, and is drained at once", () => {
    const { port, told, outbox } = setUp({ slots: 1 });
    outbox.bare(head(1));
    outbox.close();
    expect([port.sent.length, port.freeSlots, told.drained]).toEqual([0, 1, 1]);
  });
});
