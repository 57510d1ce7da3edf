import { randomBytes } from "node:crypto";
import { expect, it, onTestFinished } from "vitest";
import { builtin } from "../../wire/builtin.ts";
import { type PiecePool, pieceBytes, Staging, type StagingPiece } from "../staging.ts";
import { SealedPair } from "./pair.test-support.ts";
import { piecesInFlight } from "./piece.ts";

const key = 77n;
/** The most that one peer may have: as much as it leaves for others. */
const mostOfPeer = (16 * 1024 * 1024) / pieceBytes;

/** A pair with a grant, and the requests that wait at its owner. */
class Waiting {
  readonly pair = new SealedPair();
  readonly answers: Promise<unknown>[] = [];

  constructor() {
    onTestFinished(() => this.pair.close());
    this.pair.grant(key, "read write", randomBytes(pieceBytes));
  }

  /** Takes all of the peer's part of the pool. Returns a function that gives it back. */
  async exhaust(pool: PiecePool): Promise<() => void> {
    const taken = await Promise.all(
      Array.from({ length: mostOfPeer }, () => pool.take(this.pair.ownerAccount)),
    );
    return () => taken.forEach((piece) => void piece.giveBack());
  }

  /** Asks the owner, which waits for memory. */
  async ask(method: number, input: unknown): Promise<void> {
    this.answers.push(this.pair.ask(method, input));
    await expect.poll(() => this.pair.served.length).toBe(this.answers.length);
  }

  get(bytes = 64): Promise<void> {
    return this.ask(builtin.getPiece, [[key, 0, bytes], 0]);
  }

  put({ registered, offset }: StagingPiece): Promise<void> {
    const at = registered.base + BigInt(offset);
    return this.ask(builtin.putPiece, [[key, 0, 64], registered.key, at, 1, new Uint8Array(16)]);
  }

  giveUpAll(): void {
    for (const call of this.pair.served) call.onCancelled();
  }
}

it("a request for a piece is answered though the one before it was given up", async () => {
  const waiting = new Waiting();
  const giveBack = await waiting.exhaust(Staging.of(waiting.pair.owner).readable);
  for (const bytes of [64, 128]) {
    await waiting.get(bytes);
    waiting.giveUpAll();
  }
  await waiting.get(256);
  giveBack();
  expect(await Promise.all(waiting.answers)).toEqual(["cancelled", "cancelled", expect.any(Array)]);
});

it("a request for a piece hears why it fails, though the one before it was given up", async () => {
  const waiting = new Waiting();
  const giveBack = await waiting.exhaust(Staging.of(waiting.pair.owner).readable);
  await waiting.get();
  waiting.giveUpAll();
  await waiting.get();
  waiting.pair.grants.delete(key);
  giveBack();
  expect(await Promise.all(waiting.answers)).toEqual(["cancelled", "not_found"]);
});

it("pieces are put while some that were given up wait for memory, and those are bounded too", async () => {
  const waiting = new Waiting();
  const { owner, mover } = waiting.pair;
  const place = await Staging.of(mover).readable.take({});
  const { own } = Staging.of(owner);
  const giveBack = await waiting.exhaust(own);
  for (let round = 0; round < 2; round++) {
    for (let count = 0; count < piecesInFlight; count++) await waiting.put(place);
    waiting.giveUpAll();
  }
  await waiting.put(place);
  giveBack();
  const givenUp = Array(2 * piecesInFlight).fill("cancelled");
  expect(await Promise.all(waiting.answers)).toEqual([...givenUp, "resource_exhausted"]);
  await expect.poll(() => own.taken).toBe(0);
  await waiting.put(place);
  expect(await waiting.answers.at(-1)).toBe("data_loss");
});
