import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { FakeSocket } from "../fake-socket.test-support.ts";
import { numbersFrom } from "../numbers.test-support.ts";
import { ByteReader, maxHeldBytes } from "./byte-reader.ts";
import { DirectSocket } from "./direct-socket.ts";

/** Bytes that differ from place to place. */
const pattern = (bytes: number): Buffer => {
  const made = Buffer.alloc(bytes);
  for (let at = 0; at + 4 <= bytes; at += 4) made.writeUInt32BE((at * 2654435761) >>> 0, at);
  return made;
};

let folder = "";
let server: Server;
let client: Socket;
let accepted: Socket;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "cinnabar-reader-"));
  const path = join(folder, "socket");
  server = createServer({ pauseOnConnect: true });
  server.listen(path);
  await once(server, "listening");
  const accepting = once(server, "connection");
  client = DirectSocket.connect({ path });
  [accepted] = await accepting;
  client.on("error", () => {}); // the other side may be gone
});

afterEach(async () => {
  accepted.destroy();
  client.destroy();
  server.close();
  await rm(folder, { recursive: true });
});

/** The kinds of sockets that a reader has, and how their peer sends and ends. */
const kinds = [
  {
    kind: "a connection that was accepted",
    open() {
      const socket = DirectSocket.of(accepted);
      accepted = socket;
      expect(socket).toBeInstanceOf(DirectSocket);
      return { socket, send: (part: Buffer) => client.write(part), end: () => client.end() };
    },
  },
  {
    kind: "a connection that was made",
    open: () => ({
      socket: client,
      send: (part: Buffer) => accepted.write(part),
      end: () => accepted.end(),
    }),
  },
  {
    kind: "a stream",
    open() {
      const socket = new FakeSocket();
      return { socket, send: (part: Buffer) => socket.push(Buffer.from(part)), end: () => socket.push(null) };
    },
  },
] satisfies readonly {
  kind: string;
  open(): { socket: Duplex; send(part: Buffer): unknown; end(): unknown };
}[];

describe.each(kinds)("the reader of $kind", ({ open }) => {
  it.each([1, 2, 3, 4])(
    "gives all bytes in their order, however they come and are taken: seed %i",
    async (seed) => {
      const next = numbersFrom(seed);
      const { socket, send, end } = open();
      const reader = new ByteReader(socket);
      const bytes = 4 * 1024 * 1024;
      const sent = pattern(bytes);
      const sending = (async () => {
        for (let at = 0; at < bytes; ) {
          const length = Math.min(bytes - at, 1 + next(next(2) === 0 ? 100 : 400_000));
          send(sent.subarray(at, at + length));
          at += length;
          if (next(3) === 0) await new Promise(setImmediate);
        }
        end();
      })();
      for (let at = 0; at < bytes; ) {
        const length = Math.min(bytes - at, 1 + next([40, 5_000, 70_000, 300_000][next(4)] ?? 1));
        switch (next(4)) {
          case 0: {
            const part = Math.min(length, 65_536);
            const taken = reader.take(part) ?? (await reader.read(part));
            expect(taken?.equals(sent.subarray(at, at + part))).toBe(true);
            at += part;
            break;
          }
          case 1:
            expect(await reader.skip(length)).toBe(true);
            at += length;
            break;
          default: {
            // Several at once, and they are filled one after another.
            const cut = next(length);
            const memory = Buffer.alloc(length);
            const whole = [memory.subarray(0, cut), memory.subarray(cut)].map((part) =>
              reader.readInto(part),
            );
            expect(await Promise.all(whole)).toEqual([true, true]);
            expect(memory.equals(sent.subarray(at, at + length))).toBe(true);
            at += length;
          }
        }
      }
      await sending;
      expect(await reader.read(1)).toBeUndefined();
    },
  );

  it("gives what was awaited to none where the peer ends before", async () => {
    const { socket, send, end } = open();
    const reader = new ByteReader(socket);
    const waiting = [reader.readInto(Buffer.alloc(100_000)), reader.readInto(Buffer.alloc(10))];
    expect(reader.isWithinMessage).toBe(true);
    send(pattern(99_999));
    end();
    expect(await Promise.all(waiting)).toEqual([false, false]);
    expect(await reader.read(1)).toBeUndefined();
    expect(await reader.skip(1)).toBe(false);
    expect(await reader.readInto(Buffer.alloc(1))).toBe(false);
  });

  it("gives a message that is longer than what it may hold", async () => {
    const { socket, send } = open();
    const reader = new ByteReader(socket, 4096);
    const sent = pattern(65_536);
    send(sent);
    expect((await reader.read(16))?.equals(sent.subarray(0, 16))).toBe(true);
    expect((await reader.readRest(65_520))?.equals(sent.subarray(16))).toBe(true);
  });

  it("takes no more from the peer than it may hold while nobody reads", async () => {
    const { socket, send } = open();
    const paused = new Promise<void>((resolve) => {
      const pause = socket.pause.bind(socket);
      Object.defineProperty(socket, "pause", {
        value() {
          resolve();
          return pause();
        },
      });
    });
    const reader = new ByteReader(socket);
    const sent = pattern(8 * maxHeldBytes);
    for (let at = 0; at < sent.length; at += 65_536) send(sent.subarray(at, at + 65_536));
    await paused;
    for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
    if (socket instanceof DirectSocket) expect(socket.bytesRead).toBeLessThan(2 * maxHeldBytes);
    const all = Buffer.alloc(sent.length);
    expect(await reader.readInto(all)).toBe(true);
    expect(all.equals(sent)).toBe(true);
  });
});

it("long bodies come straight into their memory", async () => {
  const socket = DirectSocket.of(accepted) as DirectSocket;
  accepted = socket;
  const reader = new ByteReader(socket);
  const places: Uint8Array[] = [];
  socket.readInto({
    place() {
      const place = reader.place();
      places.push(place);
      return place;
    },
    filled: (bytes, memory) => reader.filled(bytes, memory),
  });
  const bodies = [Buffer.alloc(1024 * 1024), Buffer.alloc(1024 * 1024)];
  const whole = bodies.map((body) => reader.readInto(body));
  const sent = pattern(2 * 1024 * 1024);
  client.write(sent);
  expect(await Promise.all(whole)).toEqual([true, true]);
  expect(Buffer.concat(bodies).equals(sent)).toBe(true);
  const memory = new Set(bodies.map(({ buffer }) => buffer));
  // Node asks for the first memory before there is a reader.
  expect(places.filter(({ buffer }) => memory.has(buffer as ArrayBuffer)).length).toBeGreaterThan(
    places.length / 2,
  );
  expect(places.slice(1, -1).every(({ buffer }) => memory.has(buffer as ArrayBuffer))).toBe(true);
});

it("single bytes that nobody takes cost little more than themselves", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const socket = new FakeSocket();
  const reader = new ByteReader(socket);
  const sent = pattern(10_000);
  const chunks = Array.from(sent, (byte) => {
    const chunk = Buffer.from([byte]);
    socket.push(chunk);
    return new WeakRef(chunk);
  });
  await new Promise(setImmediate);
  collect();
  expect(chunks.filter((chunk) => chunk.deref() !== undefined).length).toBeLessThan(1_000);
  expect(reader.take(3)?.equals(sent.subarray(0, 3))).toBe(true);
  const rest = Buffer.alloc(9_997);
  expect(await reader.readInto(rest)).toBe(true);
  expect(rest.equals(sent.subarray(3))).toBe(true);
});

it("a connection whose handle Node does not show is read as a stream", async () => {
  const { _handle: handle } = accepted as unknown as { _handle: object };
  Object.defineProperty(handle, "useUserBuffer", { value: undefined });
  const socket = DirectSocket.of(accepted);
  expect(socket).toBe(accepted);
  const reader = new ByteReader(socket);
  client.write("data");
  expect((await reader.read(4))?.toString()).toBe("data");
});
