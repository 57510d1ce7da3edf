import { describe, expect, it } from "vitest";
import {
  type CallIdentity,
  callIdentityBytes,
  readCallIdentity,
  writeCallIdentity,
} from "./call-identity.ts";

const identity: CallIdentity = { caller: 2n ** 63n + 5n, sequence: 2 ** 53 - 1, settled: 3, incarnation: 7n };

function bytesOf(change: Partial<Record<"sequence" | "settled", bigint>>): DataView {
  const view = new DataView(writeCallIdentity(identity).buffer);
  if (change.sequence !== undefined) view.setBigUint64(8, change.sequence, true);
  if (change.settled !== undefined) view.setBigUint64(16, change.settled, true);
  return view;
}

describe("a call's identity", () => {
  it("is read as it was written, wherever it lies", () => {
    const bytes = new Uint8Array(5 + callIdentityBytes + 9);
    bytes.set(writeCallIdentity(identity), 5);
    expect(readCallIdentity(new DataView(bytes.buffer), 5, bytes.byteLength)).toEqual(identity);
  });

  it.each([
    ["is cut off", bytesOf({}), 31, "call identity has 31 bytes, not 32"],
    ["has no sequence", bytesOf({ sequence: 0n }), 32, "call identity has sequence 0"],
    ["has a sequence beyond what counts", bytesOf({ sequence: 2n ** 53n }), 32, "sequence 9007199254740992"],
    [
      "has settled itself",
      bytesOf({ sequence: 4n, settled: 5n }),
      32,
      "sequence 4, and 5 as the lowest open one",
    ],
  ])("is refused when it %s", (_, view, end, fault) => {
    expect(readCallIdentity(view, 0, end)).toContain(fault);
  });
});
