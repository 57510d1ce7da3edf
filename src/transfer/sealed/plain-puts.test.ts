import { randomBytes } from "node:crypto";
import { expect, it, onTestFinished } from "vitest";
import { builtin } from "../../wire/builtin.ts";
import { pieceBytes, Staging } from "../staging.ts";
import { SealedPair, testCiphers } from "./pair.test-support.ts";

/** Two sides of a session whose bulk travels as it is, and a grant of memory that the fabric cannot write. */
function setUp(bytes = 5 * pieceBytes + 77) {
  const pair = new SealedPair("plain");
  onTestFinished(() => pair.close());
  const there = new Uint8Array(bytes);
  pair.grant(7n, "write", there.subarray(0, 1000), there.subarray(1000));
  const here = new Uint8Array(randomBytes(bytes));
  return { pair, there, here };
}

it("puts by request what the fabric cannot write, in pieces that the owner pulls", async () => {
  const { pair, there, here } = setUp();
  const views = [here.subarray(0, 500), here.subarray(500)];
  const { moved, code } = await pair.move("put", [{ key: 7n, offset: 0, local: views }]);
  expect([moved, code]).toEqual([here.byteLength, undefined]);
  expect(Buffer.compare(there, here)).toBe(0);
  expect(pair.counters.bytesStaged).toBe(here.byteLength);
  for (const { method, input } of pair.asked) expect([method, input.length]).toEqual([builtin.putPiece, 3]);
});

it("puts short ones in the request itself", async () => {
  const { pair, there, here } = setUp();
  const local = [here.subarray(0, 3000)];
  expect(await pair.move("put", [{ key: 7n, offset: 10, local }])).toMatchObject({ moved: 3000 });
  expect(Buffer.compare(there.subarray(10, 3010), here.subarray(0, 3000))).toBe(0);
  expect([pair.counters.bytesStaged, pair.registered.length, pair.asked.length]).toEqual([3000, 0, 1]);
});

it("lets each peer read memory of its own alone, and nobody write", async () => {
  const { pair, here } = setUp();
  await pair.move("put", [{ key: 7n, offset: 0, local: [here] }]);
  // Shared with the sealed sessions of the port would be those of its staging memory.
  expect(Staging.of(pair.mover).readable.bytes).toBe(0);
  expect(pair.registered.map(({ access }) => access).sort()).toEqual([0, 1]);
});

it("stops where the owner refuses, or has lost bytes meanwhile", async () => {
  const { pair, here } = setUp();
  pair.grant(7n, "read", here);
  expect(await pair.move("put", [{ key: 7n, offset: 0, local: [here] }])).toEqual({
    moved: 0,
    code: "permission_denied",
  });
  expect(await pair.move("put", [{ key: 8n, offset: 0, local: [here] }])).toMatchObject({
    code: "not_found",
  });
});

it("puts nothing in place once the grant has ended or nobody waits", async () => {
  const { pair, there, here } = setUp();
  let isStopped = false;
  pair.onRequest = (_method, input) => {
    pair.grants.delete(7n);
    return input;
  };
  const gone = await pair.move("put", [{ key: 7n, offset: 0, local: [here] }]);
  expect(gone).toEqual({ moved: 0, code: "not_found" });
  pair.onRequest = (_method, input) => {
    isStopped = true;
    return input;
  };
  pair.grant(7n, "write", there);
  const stopped = await pair.move("put", [{ key: 7n, offset: 0, local: [here] }], {
    stopped: () => isStopped,
  });
  expect(stopped.code).toBeUndefined();
  expect(stopped.moved).toBeLessThan(here.byteLength);
});

it("is refused by the owner of a session of the other kind", async () => {
  const { pair, here } = setUp();
  const sealed = new SealedPair(testCiphers());
  onTestFinished(() => sealed.close());
  sealed.grant(7n, "read write", here);
  const range = [7n, 0, 100];
  expect(await sealed.ask(builtin.putPiece, [range, 1n, 2n])).toBe("failed_precondition");
  expect(await pair.ask(builtin.putPiece, [range, 1n, 2n, 1, new Uint8Array(16)])).toBe(
    "failed_precondition",
  );
  expect(await pair.ask(builtin.getPiece, [range])).toBe("failed_precondition");
  expect(await pair.ask(builtin.getPiece, [range, 0])).toBe("failed_precondition");
});
