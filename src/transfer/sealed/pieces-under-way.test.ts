import { expect, it, onTestFinished } from "vitest";
import { builtin } from "../../wire/builtin.ts";
import { pieceBytes } from "../staging.ts";
import { SealedPair, testCiphers } from "./pair.test-support.ts";
import { piecesInFlight } from "./piece.ts";

const key = 77n;

function closedAfter(pair: SealedPair): SealedPair {
  onTestFinished(() => pair.close());
  return pair;
}

it("asks for the next piece when it has read one, before it opens that", async () => {
  const ciphers = testCiphers();
  const all = closedAfter(new SealedPair(ciphers));
  const pieces = 20;
  const bytes = pieces * pieceBytes;
  all.grant(key, "read", new Uint8Array(bytes));
  const asked = () => all.asked.filter(({ method }) => method === builtin.getPiece).length;
  const ahead: number[] = [];
  const { open } = ciphers.opener;
  ciphers.opener.open = (...args) => {
    ahead.push(asked() - ahead.length);
    return open(...args);
  };
  await all.move("get", [{ key, offset: 0, local: [new Uint8Array(bytes)] }]);
  // This piece, those in the owner's slots, and read pieces that wait for their turn.
  expect(Math.min(...ahead.slice(0, pieces / 2))).toBeGreaterThan(piecesInFlight);
  expect(Math.max(...ahead)).toBeLessThanOrEqual(piecesInFlight + 2);
});

it("seals some pieces of a put while others are opened", async () => {
  const ciphers = testCiphers();
  const all = closedAfter(new SealedPair(ciphers));
  const bytes = 20 * pieceBytes;
  all.grant(key, "write", new Uint8Array(bytes));
  const ahead: number[] = [];
  const { open } = ciphers.opener;
  ciphers.opener.open = (...args) => {
    ahead.push(all.asked.length - ahead.length);
    return open(...args);
  };
  await all.move("put", [{ key, offset: 0, local: [new Uint8Array(bytes)] }]);
  expect(Math.max(...ahead)).toBeGreaterThan(1);
  expect(Math.max(...ahead)).toBeLessThanOrEqual(piecesInFlight);
});

it.each(["get", "put"] as const)("begins and ends a %s with short pieces", async (op) => {
  const all = closedAfter(new SealedPair());
  const bytes = 8 * pieceBytes;
  all.grant(key, "read write", new Uint8Array(bytes));
  await all.move(op, [{ key, offset: 0, local: [new Uint8Array(bytes)] }]);
  const method = op === "get" ? builtin.getPiece : builtin.putPiece;
  const lengths = all.asked
    .filter((each) => each.method === method)
    .map(({ input }) => ((input[0] as unknown[])[2] as number) / pieceBytes);
  const { length } = lengths;
  expect([lengths[0], lengths[1], lengths.at(-1)]).toEqual([0.25, 1, 0.25]);
  expect(length).toBeLessThan(16);
});
