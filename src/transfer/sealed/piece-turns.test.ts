import { randomBytes } from "node:crypto";
import { expect, it, onTestFinished } from "vitest";
import { PieceTurns } from "../piece-turns.ts";
import { pieceBytes } from "../staging.ts";
import { SealedPair, testCiphers } from "./pair.test-support.ts";

/** Counts the turns of the loop for as long as the test runs. */
function countTurns(): { readonly now: number } {
  let now = 0;
  let immediate = setImmediate(function next() {
    now++;
    immediate = setImmediate(next);
  });
  onTestFinished(() => clearImmediate(immediate));
  return {
    get now() {
      return now;
    },
  };
}

it("gives a later turn to one at a time, in the order of asking", async () => {
  const turns = new PieceTurns();
  const turn = countTurns();
  const served = await Promise.all(
    ["a", "b", "c"].map(async (name) => {
      await turns.next();
      return [name, turn.now];
    }),
  );
  const at = served.map(([, now]) => now as number);
  expect(served.map(([name]) => name)).toEqual(["a", "b", "c"]);
  expect(new Set(at).size).toBe(3);
  // Messages of this turn leave first.
  expect(Math.min(...at)).toBeGreaterThan(0);
  expect(at).toEqual(at.toSorted((one, other) => one - other));
});

it("lets what a piece has queued leave before the next piece has its turn", async () => {
  const turns = new PieceTurns();
  const order: string[] = [];
  await Promise.all(
    ["a", "b", "c"].map(async (name) => {
      await turns.next();
      // As after a cipher: the answer is queued some microtasks later, and wakes progress.
      for (let step = 0; step < 5; step++) await undefined;
      setImmediate(() => order.push(`message of ${name}`));
      order.push(name);
    }),
  );
  await new Promise(setImmediate);
  expect(order).toEqual(["a", "message of a", "b", "message of b", "c", "message of c"]);
});

it.each(["get", "put"] as const)(
  "a turn seals or opens one piece of a %s, however many transfers there are",
  async (op) => {
    const ciphers = testCiphers();
    const turn = countTurns();
    const used: number[] = [];
    const { seal } = ciphers.sealer;
    const { open } = ciphers.opener;
    ciphers.sealer.seal = (...args) => {
      used.push(turn.now);
      return seal(...args);
    };
    ciphers.opener.open = (...args) => {
      used.push(turn.now);
      return open(...args);
    };
    const pair = new SealedPair(ciphers);
    onTestFinished(() => pair.close());
    const bytes = 6 * pieceBytes;
    const there = randomBytes(bytes);
    const grants = [1n, 2n, 3n];
    for (const key of grants) pair.grant(key, "read write", there);
    const results = await Promise.all(
      grants.map((key) => pair.move(op, [{ key, offset: 0, local: [new Uint8Array(bytes)] }])),
    );
    expect(results.map(({ moved }) => moved)).toEqual([bytes, bytes, bytes]);
    expect(used.length).toBeGreaterThan(2 * 3 * 6);
    expect(new Set(used).size).toBe(used.length);
  },
);
