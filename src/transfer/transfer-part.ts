import { RpcError } from "../base/errors/rpc-error.ts";
import { isDamaged } from "../fabric/libfabric/file-memory.ts";
import {
  assertInside,
  bytesOf,
  detached,
  isDetached,
  joinNeighbours,
  lostBytes,
  sliceSegments,
} from "../memory/exposable.ts";
import { coreOf, Region } from "../memory/region.ts";
import type { RegionCore } from "../memory/region-core.ts";
import { permits } from "../memory/region-kind.ts";
import { grantedHere } from "../memory/region-registration.ts";
import { grantOf, type RemoteGrant, RemoteRegion, sliceRemoteSegments } from "../memory/remote-region.ts";
import type { TransferScope } from "./control/peer-link.ts";
import type { LocalMemory, TransferPart } from "./transfer-options.ts";

/** A part of a transfer that has passed all checks. */
export interface CheckedPart {
  readonly remote: RemoteGrant;
  readonly offset: number;
  readonly bytes: number;
  /** Exactly the local bytes to move, in order; no view is empty. */
  readonly local: readonly Uint8Array[];
  /** The region of this engine with the local memory, if the user passed a region. */
  readonly region: RegionCore | undefined;
}

/**
 * Checks one part against its regions. Invalid parts are never posted, because not every provider checks them.
 *
 * @throws TypeError for invalid memory; RpcError `failed_precondition`, `out_of_range`, `permission_denied` or
 * `data_loss`.
 */
export function checkPart(op: "get" | "put", scope: TransferScope, part: TransferPart): CheckedPart {
  const { remote, local: memory } = part;
  if (memory instanceof Region && memory.disposed) {
    throw new RpcError({
      code: "failed_precondition",
      message: `${op}: the local region has been ${memory.revoked ? "revoked" : "disposed"}`,
    });
  }
  if (!(remote instanceof RemoteRegion)) {
    throw new TypeError(`${op}: the remote region must come from this call's input`);
  }
  const views = viewsOf(op, memory);
  const held = views.reduce((sum, { byteLength }) => sum + byteLength, 0);
  const { offset = 0, localOffset = 0, length = held - localOffset } = part;
  assertInside(`${op}: local memory`, localOffset, length, held);
  assertInside(`${op}: remote region`, offset, length, remote.byteLength);
  const needed = op === "get" ? "read" : "write";
  if (!permits(remote.access, needed)) {
    throw new RpcError({
      code: "permission_denied",
      message: `${op}: the region was exposed as "${remote.access}"; ${op} needs "${needed}"`,
    });
  }
  const segments = sliceSegments(joinNeighbours(views), localOffset, length);
  if (segments.some(({ buffer }) => isDamaged(buffer))) throw lostBytes(`${op}: the local memory`);
  const grant = grantOf(remote);
  if (grant.call !== scope) {
    throw new RpcError({ code: "permission_denied", message: `${op}: the region belongs to another call` });
  }
  return {
    remote: grant,
    offset,
    bytes: length,
    local: segments,
    region: memory instanceof Region ? coreOf(memory) : undefined,
  };
}

function viewsOf(op: string, memory: LocalMemory): readonly Uint8Array[] {
  // A detached view has length 0: without this check, no byte would move and the call would succeed.
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
      `${op}: local memory must be a typed array, a Buffer, a DataView, an array of these, or a region${which}`,
    );
  }
  if (isDetached(view.buffer)) throw detached(`${op}: the local memory${which}`);
  return bytesOf(view);
}

/**
 * Peers of one thread may grant each other the very memory that a transfer reads or writes. Chunks move in any order,
 * so overlapping memory is rejected: the result would depend on the order.
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
      message: `${op}: the remote region and the local memory overlap: both are memory of this thread`,
    });
  }
}

interface Range {
  readonly from: number;
  readonly to: number;
}

/** The parts of a remote region that lie in buffers of this thread. */
function usedHere(remote: RemoteGrant, offset: number, bytes: number): Uint8Array[] {
  if (!remote.segments.some(({ key }) => grantedHere(key) !== undefined)) return [];
  return sliceRemoteSegments(remote.segments, offset, bytes).flatMap((segment) => {
    const granted = grantedHere(segment.key);
    if (granted === undefined) return [];
    const from = Number(segment.address - granted.address);
    // Outside the grant: a forged description, which the owner's port rejects.
    if (from < 0 || from + segment.bytes > granted.bytes.byteLength) return [];
    return [granted.bytes.subarray(from, from + segment.bytes)];
  });
}
