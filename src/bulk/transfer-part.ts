import type { IncomingCall } from "../call/incoming-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { assertInside, bytesOf, detached, isDetached, joinNeighbours, sliceSegments } from "./exposable.ts";
import { lentHere } from "./lent-here.ts";
import { Region } from "./region.ts";
import { grants } from "./region-kind.ts";
import { RemoteRegion } from "./remote-region.ts";
import type { LocalMemory, TransferPart } from "./transfer-options.ts";

/** A part of a transfer that may be carried out. */
export interface CheckedPart {
  readonly remote: RemoteRegion;
  readonly offset: number;
  readonly bytes: number;
  /** Exactly the local bytes to be moved, in order; no piece is empty. */
  readonly local: readonly Uint8Array[];
  /** The region of this engine that they belong to, if one was given. */
  readonly region: Region | undefined;
}

/**
 * Holds one part to what its regions allow: nothing is posted that our own books say is invalid, because not every provider looks.
 *
 * @throws TypeError for what is no memory; RpcError `failed_precondition`, `out_of_range`, `permission_denied` or `invalid_argument`.
 */
export function checkPart(op: "get" | "put", call: IncomingCall, part: TransferPart): CheckedPart {
  const { remote, local: memory } = part;
  if (memory instanceof Region && memory.disposed) {
    throw new RpcError({
      code: "failed_precondition",
      message: `${op}: the local region has been ${memory.revoked ? "revoked" : "disposed"}`,
      origin: "local",
    });
  }
  if (!(remote instanceof RemoteRegion)) {
    throw new TypeError(`${op}: the remote side must be a region that came with this call's input`);
  }
  const views = viewsOf(op, memory);
  const held = views.reduce((sum, { byteLength }) => sum + byteLength, 0);
  const { offset = 0, localOffset = 0, length = held - localOffset } = part;
  assertInside(`${op}: local memory`, localOffset, length, held);
  assertInside(`${op}: remote region`, offset, length, remote.byteLength);
  const needed = op === "get" ? "read" : "write";
  if (!grants(remote.access, needed)) {
    throw new RpcError({
      code: "permission_denied",
      message: `${op}: the region was exposed for "${remote.access}", this needs "${needed}"`,
      origin: "local",
    });
  }
  if (remote.call !== call) {
    throw new RpcError({
      code: "permission_denied",
      message: `${op}: the region came with another call, and ends with it`,
      origin: "local",
    });
  }
  return {
    remote,
    offset,
    bytes: length,
    local: sliceSegments(joinNeighbours(views), localOffset, length),
    region: memory instanceof Region ? memory : undefined,
  };
}

function viewsOf(op: string, memory: LocalMemory): readonly Uint8Array[] {
  // A detached view has length 0: without looking, nothing would move and the call would succeed.
  if (memory instanceof Region) {
    const gone = memory.segments.some(({ buffer }) => isDetached(buffer));
    if (gone) throw detached(`${op}: the local memory`);
    return memory.segments;
  }
  if (Array.isArray(memory)) return memory.map((view, index) => viewOf(op, view, ` (view ${index})`));
  return [viewOf(op, memory, "")];
}

function viewOf(op: string, view: unknown, which: string): Uint8Array {
  if (!ArrayBuffer.isView(view)) {
    throw new TypeError(
      `${op}: local memory must be a typed array, a Buffer, a DataView, several of them, or a region${which}`,
    );
  }
  if (isDetached(view.buffer)) throw detached(`${op}: the local memory${which}`);
  return bytesOf(view);
}

/**
 * Peers of one thread may lend each other the very memory a transfer is to read and to write. Chunks move in any order, so what overlaps is
 * refused: the outcome would depend on it.
 *
 * @throws RpcError `invalid_argument`.
 */
export function assertApart(op: string, parts: readonly CheckedPart[]): void {
  const there = parts.flatMap(({ remote, offset, bytes }) => usedHere(remote, offset, bytes));
  if (there.length === 0) return;
  const ranges = new Map<ArrayBufferLike, Range[]>();
  for (const { buffer, byteOffset, byteLength } of parts.flatMap(({ local }) => local)) {
    const range = { from: byteOffset, to: byteOffset + byteLength };
    const known = ranges.get(buffer);
    if (known === undefined) ranges.set(buffer, [range]);
    else known.push(range);
  }
  for (const { buffer, byteOffset, byteLength } of there) {
    const overlaps = ranges
      .get(buffer)
      ?.some(({ from, to }) => from < byteOffset + byteLength && byteOffset < to);
    if (overlaps !== true) continue;
    throw new RpcError({
      code: "invalid_argument",
      message: `${op}: the remote region and the local memory overlap, they are the same memory of this thread`,
      origin: "local",
    });
  }
}

interface Range {
  readonly from: number;
  readonly to: number;
}

/** The pieces of a remote region that lie in this thread's own buffers. */
function usedHere(remote: RemoteRegion, offset: number, bytes: number): Uint8Array[] {
  if (!remote.segments.some(({ key }) => lentHere(key) !== undefined)) return [];
  return remote.slice(offset, bytes).segments.flatMap((segment) => {
    const lent = lentHere(segment.key);
    if (lent === undefined) return [];
    const from = Number(segment.address - lent.address);
    // Beyond what was lent: a forged handle, which its owner's port refuses.
    if (from < 0 || from + segment.bytes > lent.bytes.byteLength) return [];
    return [lent.bytes.subarray(from, from + segment.bytes)];
  });
}
