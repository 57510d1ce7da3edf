import { EventEmitter } from "node:events";
import type { Socket } from "node:net";
import { describe, expect, it, vi } from "vitest";
import { MemRegions } from "../mem-regions.ts";
import { access } from "../port.ts";
import {
  extentBytes,
  frameKind,
  headerBytes,
  magic,
  version,
  withNotification,
  writeExtents,
  writeHeader,
} from "./frame.ts";
import { FrameReader, type FrameSink } from "./frame-reader.ts";
import { WriteBuffers } from "./frame-writer.ts";
import { Link, type LinkOwner } from "./link.ts";

const slotBytes = 4096;
const isLong = process.env.CINNABAR_LONG === "1";

function frame(kind: number, body: Uint8Array, request = 0, word = 0, flags = 0): Buffer {
  const bytes = Buffer.alloc(headerBytes + body.byteLength);
  writeHeader(bytes, 0, kind, body.byteLength, request, word, flags);
  bytes.set(body, headerBytes);
  return bytes;
}

function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Records frames as text. */
class Heard implements FrameSink {
  isFull = false;
  readonly frames: string[] = [];
  #bytes = "";

  onFrame(bytes: Buffer, at: number, length: number): void {
    this.frames.push(bytes.toString("hex", at, at + length));
  }

  onBytes(kind: number, request: number, word: number, bytes: Buffer, left: number): void {
    this.#bytes += bytes.toString("hex");
    if (left > 0) return;
    this.frames.push(`${kind} ${request} ${word} ${this.#bytes}`);
    this.#bytes = "";
  }
}

const hello = frame(frameKind.hello, Buffer.alloc(32, 9), magic, version);
const extents = Buffer.alloc(2 * extentBytes);
writeExtents(extents, 0, [
  { key: 7n, remote: 0n, bytes: 100 },
  { key: 7n, remote: 50n, bytes: 20 },
]);
const notified = Buffer.concat([Buffer.alloc(8, 3), extents]);
const honest = [
  hello,
  frame(frameKind.message, Buffer.alloc(1000, 1)),
  frame(frameKind.put, extents, 1, 2),
  frame(frameKind.message, Buffer.alloc(1, 2)),
  frame(frameKind.putBytes, Buffer.alloc(70, 4), 1),
  frame(frameKind.get, extents, 2, 2),
  frame(frameKind.putBytes, Buffer.alloc(50, 5), 1),
  frame(frameKind.put, notified, 3, 2, withNotification),
  frame(frameKind.putBytes, Buffer.alloc(120, 6), 3),
  frame(frameKind.put, extents, 4, 2),
  frame(frameKind.putBytes, Buffer.alloc(0), 4, 125),
  frame(frameKind.message, Buffer.alloc(slotBytes, 3)),
];

describe("a frame reader", () => {
  it("finds the same frames however the stream is cut", () => {
    const stream = Buffer.concat(honest);
    const whole = new Heard();
    new FrameReader(slotBytes, whole).read(stream, 0);
    expect(whole.frames).toHaveLength(honest.length);
    const random = seeded(1);
    for (let round = 0; round < 300; round++) {
      const heard = new Heard();
      const reader = new FrameReader(slotBytes, heard);
      const mostBytes = round === 0 ? 1 : 1 + Math.floor(random() * 200);
      for (let at = 0; at < stream.byteLength; ) {
        const chunk = Buffer.from(stream.subarray(at, at + 1 + Math.floor(random() * mostBytes)));
        expect(reader.read(chunk, 0)).toBe(chunk.byteLength);
        at += chunk.byteLength;
      }
      expect(heard.frames).toEqual(whole.frames);
    }
  });

  it("stops while its sink is full, and goes on behind the last frame", () => {
    const stream = Buffer.concat(honest);
    const heard = new Heard();
    const reader = new FrameReader(slotBytes, heard);
    const take = heard.onFrame.bind(heard);
    heard.onFrame = (bytes, at, length) => {
      take(bytes, at, length);
      heard.isFull = true;
    };
    let rounds = 0;
    for (let at = 0; at < stream.byteLength; rounds++) {
      heard.isFull = false;
      at = reader.read(stream, at);
    }
    expect(rounds).toBeGreaterThan(5);
    expect(heard.frames).toHaveLength(honest.length);
  });

  it("takes memory for what has come, not for what is announced", () => {
    const allocated = vi.spyOn(Buffer, "allocUnsafe");
    const reader = new FrameReader(slotBytes, new Heard());
    reader.read(hello, 0);
    const message = frame(frameKind.message, Buffer.alloc(slotBytes));
    for (let at = 0; at < 100; at++) reader.read(Buffer.from(message.subarray(at, at + 1)), 0);
    const most = Math.max(...allocated.mock.calls.map(([bytes]) => bytes));
    allocated.mockRestore();
    expect(most).toBeLessThan(1024);
  });
});

/** A socket with events from the test. It completes writes at once. */
class FakeSocket extends EventEmitter {
  destroyed = false;
  setNoDelay(): void {}
  setTimeout(): void {}
  isPaused(): boolean {
    return false;
  }
  write(_bytes: Uint8Array, done: () => void): boolean {
    queueMicrotask(done);
    return true;
  }
  destroy(): void {
    this.destroyed = true;
  }
}

describe("mutated frames", () => {
  it("end their connection or do what frames may, and touch no memory without a key", {
    timeout: 3_600_000,
  }, async () => {
    const most = isLong ? 10_000_000 : 60_000;
    const random = seeded(25);
    const below = (limit: number) => Math.floor(random() * limit);
    const memory = new MemRegions();
    const lent = new Uint8Array(100);
    memory.add(lent, access.remoteRead | access.remoteWrite, 7n);
    const secret = new Uint8Array(100);
    memory.add(secret, access.remoteRead | access.remoteWrite, 0x1234_5678_9abc_def0n);
    const local = new Uint8Array(100);
    memory.add(local, access.local, 8n);
    let delivered = 0;
    let longest = 0;
    let cutOff = 0;
    const owner: LinkOwner = {
      memory,
      slab: Buffer.alloc(slotBytes),
      slotBytes,
      buffers: new WriteBuffers(),
      unread: 0,
      receiveDepth: 1,
      wakesItself: false,
      arrive: ({ bytes }) => {
        longest = Math.max(longest, bytes?.byteLength ?? 0);
        delivered++;
      },
      turn: 0,
      wakeNow: () => {},
      deliverPutNotification: () => {},
      endSend: () => {},
      endTransfer: () => {},
      park: () => -1,
      onHello: () => {},
      onReadable: () => {},
      onUnborn: () => {},
      flushSoon: (link) => link.writer.flush(),
    };
    for (let sent = 0; sent < most; ) {
      const socket = new FakeSocket();
      const link = new Link(owner, socket as unknown as Socket, false);
      socket.emit("data", hello);
      for (let i = 0; i < 200 && !socket.destroyed; i++, sent++) {
        const bytes = Buffer.from(honest[1 + below(honest.length - 1)] as Buffer);
        for (let changes = below(3); changes > 0; changes--) {
          const at = random() < 0.7 ? below(Math.min(80, bytes.byteLength)) : below(bytes.byteLength);
          bytes[at] = [0, 1, 0x7f, 0xff, below(256)][below(5)] as number;
        }
        const cut = random() < 0.1 ? below(bytes.byteLength) : bytes.byteLength;
        socket.emit("data", bytes.subarray(0, cut));
        link.read();
        if (cut < bytes.byteLength && !socket.destroyed) {
          socket.emit("data", bytes.subarray(cut));
          link.read();
        }
      }
      if (socket.destroyed) cutOff++;
      // Writes of this connection complete.
      await Promise.resolve();
    }
    expect(delivered).toBeGreaterThan(most / 10);
    expect(longest).toBeLessThanOrEqual(slotBytes);
    expect(cutOff).toBeGreaterThan(100);
    expect(secret.every((byte) => byte === 0)).toBe(true);
    expect(local.every((byte) => byte === 0)).toBe(true);
    expect(lent.some((byte) => byte !== 0)).toBe(true);
  });
});
