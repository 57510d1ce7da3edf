import { RpcError } from "../base/errors/rpc-error.ts";
import { realTimers } from "../base/time/real-timers.ts";
import { lostBytes, sliceSegments } from "../memory/exposable.ts";
import type { RegionCore } from "../memory/region-core.ts";
import { builtin } from "../wire/builtin.ts";
import { crc32c } from "./checksum.ts";
import { asCount, builtinMethod, fail, isUint32, isUint64 } from "./control/control-method.ts";
import { requestInCall, unexpected } from "./control/control-request.ts";
import type { PeerLink, TransferScope } from "./control/peer-link.ts";
import type { CheckedPart } from "./transfer-part.ts";

/** The bytes summed in one turn of the event loop: about a millisecond. */
const chunkBytes = 1024 * 1024;
/** Ranges in one control request; more are split. */
const maxRanges = 1024;

/** A range of a region. */
export interface ByteRange {
  readonly offset: number;
  readonly bytes: number;
}

/** Sums of several peers take turns, so that together they use no more of the thread than one sum. */
let turn: Promise<void> = Promise.resolve();

/**
 * The checksum over the views, one part in each turn of the event loop. When `goOn` returns false it stops, and the
 * result is meaningless.
 */
async function sumOf(views: readonly Uint8Array[], seed: number, goOn: () => boolean): Promise<number> {
  let sum = seed;
  for (const view of views) {
    for (let at = 0; at < view.byteLength && goOn(); at += chunkBytes) {
      const before = turn;
      let done = () => {};
      turn = new Promise((resolve) => {
        done = resolve;
      });
      await before;
      try {
        sum = crc32c(view.subarray(at, at + chunkBytes), sum);
      } finally {
        // Even when the memory is gone: others wait for their turn.
        realTimers.setImmediate(done);
      }
    }
  }
  return sum;
}

/**
 * Compares the bytes of both sides after a transfer: each side computes a checksum of its own bytes.
 *
 * @throws RpcError `data_loss` that names both sums; the error of the control request.
 */
export async function verify(
  what: string,
  scope: TransferScope,
  peer: PeerLink,
  parts: readonly CheckedPart[],
): Promise<void> {
  for (const group of grouped(parts)) {
    const [{ remote }] = group;
    const asked = requestInCall(scope, peer, builtin.checksum, [
      remote.grantKey,
      group.flatMap(({ remote: { grantOffset }, offset, bytes }) => [grantOffset + offset, bytes]),
    ]);
    // It is not awaited while this side computes its sum.
    asked.catch(() => {});
    const views = group.flatMap(({ local }) => local);
    const here = await sumOf(views, 0, () => scope.open);
    const there = await asked;
    if (!isUint32(there)) throw unexpected(peer);
    if (here === there) continue;
    const bytes = group.reduce((sum, part) => sum + part.bytes, 0);
    throw new RpcError({
      code: "data_loss",
      message: `${what}: the checksum of ${bytes} bytes is ${hex(there)} at the owner and ${hex(here)} here`,
    });
  }
}

type Group = [CheckedPart, ...CheckedPart[]];

/** Groups the parts for control requests: one grant each, with a limited number of ranges. */
function grouped(parts: readonly CheckedPart[]): Group[] {
  const groups: Group[] = [];
  for (const part of parts) {
    if (part.bytes === 0) continue;
    const last = groups.at(-1);
    if (last !== undefined && last[0].remote.grantKey === part.remote.grantKey && last.length < maxRanges)
      last.push(part);
    else groups.push([part]);
  }
  return groups;
}

function hex(sum: number): string {
  return `0x${sum.toString(16).padStart(8, "0")}`;
}

interface ChecksumInput {
  readonly key: bigint;
  readonly ranges: readonly ByteRange[];
}

/** Serves `checksum`: the CRC-32C over ranges of a grant, in order. */
export const checksumMethod = builtinMethod<ChecksumInput>(
  "checksum",
  ([key, numbers]) => {
    if (!isUint64(key) || !Array.isArray(numbers) || numbers.length > 2 * maxRanges) return undefined;
    const ranges: ByteRange[] = [];
    for (let i = 0; i < numbers.length; i += 2) {
      const offset = asCount(numbers[i]);
      const bytes = asCount(numbers[i + 1]);
      if (offset === undefined || bytes === undefined) return undefined;
      ranges.push({ offset, bytes });
    }
    return { key, ranges };
  },
  async ({ key, ranges }, call, peer) => {
    // A grant for writing is enough: a peer that put bytes there may verify them. The checksum of a few bytes reveals
    // them.
    const regions = ranges.map(({ offset, bytes }) => peer.grants.check(key, undefined, offset, bytes));
    const granted = peer.grants.find(key);
    const goOn = () => call.open && peer.grants.find(key) === granted;
    let sum = 0;
    for (const [index, range] of ranges.entries())
      sum = await sumOf(
        sliceSegments((regions[index] as RegionCore).segments, range.offset, range.bytes),
        sum,
        goOn,
      );
    if (regions.some(({ isDamaged }) => isDamaged)) throw lostBytes("the owner's memory", "remote");
    if (goOn()) call.settle({ value: sum });
    else fail(call, "failed_precondition", "the grant ended during the checksum");
  },
);
