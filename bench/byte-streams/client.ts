import { type Client, Engine } from "cinnabar";
import { BulkStream } from "cinnabar-bulk";
import { heartbeatMs } from "../bulk/contract.ts";
import { cpuUs } from "../echo/usage.ts";
import type { Party } from "../suite/child.ts";
import { percentile } from "../suite/statistics.ts";
import { ByBulkStream, ByItems, ByWebStreams, ByWideItems } from "./contract.ts";
import { netWays } from "./net.ts";
import { patternedPiece, pieces, readExactly } from "./pieces.ts";
import { readableOf, writableOf } from "./web.ts";

/** One way to carry bytes of which nobody knows how many come. */
export interface Way {
  /** Sends all of the pieces to the server. Gives the bytes when the server has said that it has them. */
  up(all: Iterable<Uint8Array>): Promise<number>;
  /** Reads what the server sends in a time. Gives the bytes. */
  down(pieceBytes: number, durationMs: number): Promise<number>;
  /** Opens a stream in each direction; the server sends back what it gets. */
  bounce(): Promise<Bouncing>;
}

export interface Bouncing {
  write(piece: Uint8Array): Promise<void>;
  /** What has come, in pieces of any length. */
  next(): Promise<Uint8Array | undefined>;
  end(): Promise<void>;
}

export type Ways = Readonly<Record<string, Way>>;

/** What was carried, and in which time: from the opening of the stream until its end is known to the client. */
export interface Carried {
  readonly bytes: number;
  readonly elapsedMs: number;
}

export interface ByteClient extends Party {
  /** Rejects when another piece comes back than was sent. */
  check(way: string, pieceBytes: number): Promise<void>;
  carry(way: string, direction: "up" | "down", pieceBytes: number, durationMs: number): Promise<Carried>;
  /** Sends a piece and waits for it, again and again over the same streams: µs there and back. */
  bounce(way: string, pieceBytes: number, durationMs: number): Promise<{ p50Us: number; p99Us: number }>;
  /** Opens a stream, sends one piece and ends it, again and again: the median of the whole in µs. */
  short(way: string, pieceBytes: number, durationMs: number): Promise<number>;
  /** Processor time that the process has used since it started. */
  cpuUs(): Promise<number>;
}

/** `where`: the URL for Cinnabar, "tcp" or "unix" for node:net. */
export async function open(where: string, address: string): Promise<ByteClient> {
  const engine = where.includes("://") ? await Engine.open({ heartbeatMs }) : undefined;
  const ways = engine === undefined ? netWays(address) : await cinnabarWays(engine, address);
  const pieceOf = new Map<number, Uint8Array>();
  const piece = (bytes: number) => {
    const made = pieceOf.get(bytes) ?? patternedPiece(bytes);
    pieceOf.set(bytes, made);
    return made;
  };
  const wayOf = (name: string) => {
    const way = ways[name];
    if (way === undefined) throw new Error(`no way is called ${name}`);
    return way;
  };
  return {
    async check(name, pieceBytes) {
      const bouncing = await wayOf(name).bounce();
      const back = new Uint8Array(pieceBytes);
      for (let count = 0; count < 3; count++) {
        await Promise.all([bouncing.write(piece(pieceBytes)), readExactly(bouncing.next, back.fill(0))]);
        if (Buffer.compare(back, piece(pieceBytes)) !== 0)
          throw new Error(`${where}, ${name}: something else comes back than was sent`);
      }
      await bouncing.end();
    },

    async carry(name, direction, pieceBytes, durationMs) {
      const way = wayOf(name);
      const startedMs = performance.now();
      const bytes =
        direction === "up"
          ? await way.up(pieces(piece(pieceBytes), durationMs))
          : await way.down(pieceBytes, durationMs);
      return { bytes, elapsedMs: performance.now() - startedMs };
    },

    async bounce(name, pieceBytes, durationMs) {
      const bouncing = await wayOf(name).bounce();
      const back = new Uint8Array(pieceBytes);
      const tookUs: number[] = [];
      for (const sent of pieces(piece(pieceBytes), durationMs)) {
        const begunMs = performance.now();
        await Promise.all([bouncing.write(sent), readExactly(bouncing.next, back)]);
        tookUs.push((performance.now() - begunMs) * 1000);
      }
      await bouncing.end();
      const sorted = Float64Array.from(tookUs).sort();
      return { p50Us: percentile(sorted, 0.5), p99Us: percentile(sorted, 0.99) };
    },

    async short(name, pieceBytes, durationMs) {
      const way = wayOf(name);
      const tookUs: number[] = [];
      for (const sent of pieces(piece(pieceBytes), durationMs)) {
        const begunMs = performance.now();
        await way.up([sent]);
        tookUs.push((performance.now() - begunMs) * 1000);
      }
      return percentile(Float64Array.from(tookUs).sort(), 0.5);
    },

    cpuUs: async () => cpuUs(),
    close: async () => engine?.close(),
  };
}

async function cinnabarWays(engine: Engine, address: string): Promise<Ways> {
  const peer = await engine.connect(address, { timeoutMs: heartbeatMs });
  return {
    bulk_stream: bulkStreams(engine, peer.client(ByBulkStream, { timeoutMs: 60_000 })),
    items: items(peer.client(ByItems)),
    wide_items: items(peer.client(ByWideItems)),
    web_items: webStreams(peer.client(ByWebStreams)),
  };
}

function bulkStreams(engine: Engine, client: Client<typeof ByBulkStream>): Way {
  return {
    async up(all) {
      const from = new BulkStream(engine, "read");
      const answer = client.take({ from });
      const { bytes } = await writeAll(from.writable.getWriter(), all);
      return same(bytes, (await answer).bytes);
    },
    async down(pieceBytes, durationMs) {
      const into = new BulkStream(engine, "write");
      const answer = client.give({ into, pieceBytes, durationMs });
      let bytes = 0;
      for await (const part of into.readable) bytes += part.byteLength;
      return same((await answer).bytes, bytes);
    },
    async bounce() {
      const from = new BulkStream(engine, "read");
      const into = new BulkStream(engine, "write");
      const answer = client.bounce({ from, into });
      const writer = from.writable.getWriter();
      const parts = into.readable[Symbol.asyncIterator]();
      return {
        write: (piece) => writer.write(piece),
        next: async () => partOf(await parts.next()),
        async end() {
          await Promise.all([writer.close(), parts.next()]);
          await answer;
        },
      };
    },
  };
}

function items(client: Client<typeof ByItems> | Client<typeof ByWideItems>): Way {
  return {
    async up(all) {
      const writer = client.take.open();
      let bytes = 0;
      for (const piece of all) {
        await writer.send(piece);
        bytes += piece.byteLength;
      }
      return same(bytes, (await writer.end()).bytes);
    },
    async down(pieceBytes, durationMs) {
      let bytes = 0;
      for await (const item of client.give({ pieceBytes, durationMs })) bytes += item.byteLength;
      return bytes;
    },
    async bounce() {
      const stream = client.bounce.open();
      return {
        write: (piece) => stream.send(piece),
        next: async () => partOf(await stream.next()),
        async end() {
          await stream.end();
          await stream.next();
        },
      };
    },
  };
}

function webStreams(client: Client<typeof ByWebStreams>): Way {
  return {
    async up(all) {
      const writer = client.take.open();
      let answer: { readonly bytes: number } | undefined;
      const writable = writableOf(
        (item) => writer.send(item),
        async () => {
          answer = await writer.end();
        },
      );
      const { bytes } = await writeAll(writable.getWriter(), all);
      return same(bytes, answer?.bytes ?? -1);
    },
    async down(pieceBytes, durationMs) {
      let bytes = 0;
      for await (const part of readableOf(client.give({ pieceBytes, durationMs }))) bytes += part.byteLength;
      return bytes;
    },
    async bounce() {
      const stream = client.bounce.open();
      const writer = writableOf(
        (item) => stream.send(item),
        () => stream.end(),
      ).getWriter();
      const parts = readableOf(stream)[Symbol.asyncIterator]();
      return {
        write: (piece) => writer.write(piece),
        next: async () => partOf(await parts.next()),
        async end() {
          await Promise.all([writer.close(), parts.next()]);
        },
      };
    },
  };
}

interface Writer {
  write(piece: Uint8Array): Promise<void>;
  close(): Promise<void>;
}

async function writeAll(writer: Writer, all: Iterable<Uint8Array>): Promise<{ bytes: number }> {
  let bytes = 0;
  for (const piece of all) {
    await writer.write(piece);
    bytes += piece.byteLength;
  }
  await writer.close();
  return { bytes };
}

function partOf({ done, value }: IteratorResult<Uint8Array, undefined>): Uint8Array | undefined {
  return done === true ? undefined : value;
}

/** @throws Error when other bytes were received than sent. */
function same(sent: number, received: number): number {
  if (sent !== received) throw new Error(`${sent} bytes were sent, ${received} came`);
  return received;
}
