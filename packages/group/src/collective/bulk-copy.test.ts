import { Engine, type PooledMemory, type RemoteRegion, RpcError } from "cinnabar/standard";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { BulkCopy, type BulkSource, pieceBytes } from "./bulk-copy.ts";

const byteLength = 4 * pieceBytes;
const caller = new Uint8Array(byteLength).map((_, index) => index % 251);

let engine: Engine;
let memory: PooledMemory<"read">;
let copy: BulkCopy;
beforeEach(async () => {
  engine = await Engine.open();
  memory = engine.pool.take(byteLength, { access: "read" });
  copy = BulkCopy.into(memory, "crc32c");
});
afterEach(async () => {
  copy.release();
  await engine.close();
});

interface Piece {
  readonly offset: number;
  readonly length: number;
  land(error?: RpcError): void;
}

/** A parent with offers and pieces that the test controls. */
class Parent implements BulkSource {
  readonly pieces: Piece[] = [];
  readonly region = {} as RemoteRegion<"read">;
  readonly #end = new AbortController();
  readonly #offered: number[] = [];
  #wake = (): void => undefined;

  readonly call = {
    signal: this.#end.signal,
    get: (_: unknown, local: Uint8Array, options: { offset: number; length: number; signal: AbortSignal }) =>
      new Promise<number>((resolve, reject) => {
        const { offset, length, signal } = options;
        const giveUp = () => reject(new RpcError({ code: "cancelled", message: "given up" }));
        this.#end.signal.addEventListener("abort", giveUp);
        signal.addEventListener("abort", giveUp);
        const land = (error?: RpcError) => {
          if (error !== undefined) return reject(error);
          local.set(caller.subarray(offset, offset + length), offset);
          resolve(length);
        };
        this.pieces.push({ offset, length, land });
      }),
  } as unknown as BulkSource["call"];

  readonly offers = this.#tell();

  offer(bytes: number): void {
    this.#offered.push(bytes);
    this.#wake();
  }

  lose(): void {
    this.#end.abort(new RpcError({ code: "unavailable", message: "lost" }));
  }

  async *#tell(): AsyncGenerator<number> {
    for (;;) {
      while (this.#offered.length > 0) yield this.#offered.shift() as number;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  async piece(index: number): Promise<Piece> {
    return vi.waitFor(() => {
      const piece = this.pieces[index];
      if (piece === undefined) throw new Error(`piece ${index} has not been asked for`);
      return piece;
    }, 60_000);
  }
}

const ranges = ({ pieces }: Parent) =>
  pieces.map(({ offset, length }) => [offset / pieceBytes, length / pieceBytes]);

it("offers each piece when it has it, while it pulls the next", async () => {
  const parent = new Parent();
  copy.follow(parent);
  const offers = copy.offers();
  parent.offer(pieceBytes / 2);
  (await parent.piece(0)).land();
  expect((await offers.next()).value).toBe(pieceBytes / 2);
  parent.offer(byteLength);
  (await parent.piece(1)).land();
  const next = await parent.piece(2);
  expect((await offers.next()).value).toBe(1.5 * pieceBytes);
  next.land();
  (await parent.piece(3)).land();
  (await parent.piece(4)).land();
  await copy.whole();
  // A slow child gets only the newest number.
  expect((await offers.next()).value).toBe(byteLength);
  expect((await offers.next()).done).toBe(true);
  expect(Buffer.compare(copy.bytes, caller)).toBe(0);
  expect(ranges(parent)).toEqual([
    [0, 0.5],
    [0.5, 1],
    [1.5, 1],
    [2.5, 1],
    [3.5, 0.5],
  ]);
});

it("goes on from another parent behind what is here, when the first is lost between two pieces", async () => {
  const [first, second] = [new Parent(), new Parent()];
  copy.follow(first);
  first.offer(2 * pieceBytes);
  (await first.piece(0)).land();
  await first.piece(1);
  first.lose();
  copy.follow(second);
  // It is behind, and catches up.
  second.offer(pieceBytes);
  second.offer(byteLength);
  for (let index = 0; index < 3; index++) (await second.piece(index)).land();
  await copy.whole();
  expect(ranges(second)).toEqual([
    [1, 1],
    [2, 1],
    [3, 1],
  ]);
  expect(Buffer.compare(copy.bytes, caller)).toBe(0);
});

it("does not wait for a parent that stands still once another has more", async () => {
  const [stopped, second] = [new Parent(), new Parent()];
  copy.follow(stopped);
  stopped.offer(byteLength);
  await stopped.piece(0);
  copy.follow(second);
  second.offer(pieceBytes);
  (await second.piece(0)).land();
  // The first one has more again, and is asked for it until the second has.
  await stopped.piece(1);
  second.offer(byteLength);
  for (let index = 1; index < 4; index++) (await second.piece(index)).land();
  await copy.whole();
  expect(Buffer.compare(copy.bytes, caller)).toBe(0);
});

it("pulls a piece again whose checksum differs, three times in all", async () => {
  const parent = new Parent();
  const differs = new RpcError({ code: "data_loss", message: "the checksum differs" });
  copy.follow(parent);
  parent.offer(byteLength);
  (await parent.piece(0)).land(differs);
  (await parent.piece(1)).land(differs);
  (await parent.piece(2)).land();
  for (let index = 3; index < 6; index++) (await parent.piece(index)).land(differs);
  await expect(copy.whole()).rejects.toBe(differs);
  expect(copy.readyBytes).toBe(pieceBytes);
  expect(ranges(parent).map(([piece]) => piece)).toEqual([0, 0, 0, 1, 1, 1]);
});

it("fails with what is no loss of the parent", async () => {
  const parent = new Parent();
  const taken = new RpcError({ code: "aborted", message: "the region was revoked" });
  copy.follow(parent);
  parent.offer(byteLength);
  (await parent.piece(0)).land(taken);
  await expect(copy.whole()).rejects.toBe(taken);
  expect((await copy.offers().next()).done).toBe(true);
});

it("that is released ends everything that waits, and gives its memory back", async () => {
  const parent = new Parent();
  copy.follow(parent);
  parent.offer(byteLength);
  await parent.piece(0);
  const [whole, offer] = [copy.whole(), copy.offers().next()];
  copy.release();
  copy.release();
  await expect(whole).rejects.toMatchObject({ code: "cancelled" });
  expect((await offer).done).toBe(true);
  expect(memory.disposed).toBe(true);
  await vi.waitFor(() => expect(engine.stats().pool.takenBytes).toBe(0), 60_000);
});
