import { crc32c } from "../bulk/checksum.ts";
import { sliceSegments } from "../bulk/exposable.ts";
import type { Region } from "../bulk/region.ts";
import type { CheckedPart } from "../bulk/transfer-part.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Session } from "../session/session.ts";
import { builtin } from "../wire/builtin.ts";
import { askInCall, unexpected } from "./ask-in-call.ts";
import { asCount, builtinMethod, fail, isUint32, isUint64 } from "./builtin-method.ts";
import { lentTo } from "./lent.ts";

/** How much is summed in one turn of the loop: about a millisecond. */
const sliceBytes = 1024 * 1024;
/** Ranges in one question; more are asked for in several. */
const maxRanges = 1024;

/** A range of a region. */
export interface ByteRange {
  readonly offset: number;
  readonly bytes: number;
}

/** Who is summing now: sums for several peers take turns, so that together they take no more of the thread than one. */
let turn: Promise<void> = Promise.resolve();

/** The sum over the views, one after another, a slice in each turn of the loop. Stops when `goOn` says so, with a sum that is none. */
async function sumOf(views: readonly Uint8Array[], seed: number, goOn: () => boolean): Promise<number> {
  let sum = seed;
  for (const view of views) {
    for (let at = 0; at < view.byteLength && goOn(); at += sliceBytes) {
      const before = turn;
      let done = () => {};
      turn = new Promise((resolve) => {
        done = resolve;
      });
      await before;
      try {
        sum = crc32c(view.subarray(at, at + sliceBytes), sum);
      } finally {
        // Also when the memory has gone meanwhile: others wait for their turn.
        setImmediate(done);
      }
    }
  }
  return sum;
}

/**
 * Compares what a transfer has left at both sides: the owner sums up its bytes, this side its own.
 *
 * @throws RpcError `data_loss` naming both sums when they differ; what the question fails with.
 */
export async function verify(
  what: string,
  call: IncomingCall,
  session: Session,
  parts: readonly CheckedPart[],
): Promise<void> {
  for (const group of grouped(parts)) {
    const [{ remote }] = group;
    const asked = askInCall(call, session, builtin.checksum, [
      remote.loanKey,
      group.flatMap(({ remote: { loanOffset }, offset, bytes }) => [loanOffset + offset, bytes]),
    ]);
    // Nobody waits for it while this side sums.
    asked.catch(() => {});
    const views = group.flatMap(({ local }) => local);
    const here = await sumOf(views, 0, () => call.open);
    const there = await asked;
    if (!isUint32(there)) throw unexpected(session);
    if (here === there) continue;
    const bytes = group.reduce((sum, part) => sum + part.bytes, 0);
    throw new RpcError({
      code: "data_loss",
      message: `${what}: the checksum of ${bytes} bytes is ${hex(there)} at the owner and ${hex(here)} here`,
      origin: "local",
    });
  }
}

type Group = [CheckedPart, ...CheckedPart[]];

/** Parts that one question can be asked about: of one loan, and not too many. */
function grouped(parts: readonly CheckedPart[]): Group[] {
  const groups: Group[] = [];
  for (const part of parts) {
    if (part.bytes === 0) continue;
    const last = groups.at(-1);
    if (last !== undefined && last[0].remote.loanKey === part.remote.loanKey && last.length < maxRanges)
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

/** Serves `checksum`: crc32c over ranges of a loan, in their order. */
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
  async ({ key, ranges }, call, session) => {
    // It may have been lent for writing only: who has put bytes there may ask whether they arrived. A sum of few bytes tells them, too.
    const regions = ranges.map(({ offset, bytes }) => lentTo(session, key, undefined, offset, bytes));
    const lent = session.lent.find(key);
    const goOn = () => call.open && session.lent.find(key) === lent;
    let sum = 0;
    for (const [index, range] of ranges.entries())
      sum = await sumOf(
        sliceSegments((regions[index] as Region).segments, range.offset, range.bytes),
        sum,
        goOn,
      );
    if (goOn()) call.settle({ value: sum });
    else fail(call, "failed_precondition", "the region came back while it was being summed");
  },
);
