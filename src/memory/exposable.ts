import { RpcError } from "../base/errors/rpc-error.ts";
import { callback, oneOf, required } from "../base/options/options.ts";
import { maxRegionSegments } from "../wire/region-descriptor.ts";
import type { Access, OnGranted, RegionKeys } from "./region-kind.ts";

const accesses = ["read", "write", "read_write"] as const satisfies Access[];

/** The options of a region, as `engine.pool.take` has them. */
export const regionFields = {
  access: oneOf(accesses),
  keys: oneOf(["call", "region"] as const satisfies RegionKeys[]),
};

/** The options of `engine.expose`. */
export const exposeFields = {
  ...regionFields,
  access: required(regionFields.access),
  onGranted: callback<OnGranted>(),
};

/**
 * The memory of a region as bytes, without empty views, and with adjacent views joined.
 *
 * @throws TypeError naming the view that does not fit; RangeError for more than 4096 segments; RpcError
 * `failed_precondition` for detached memory.
 */
export function exposable(views: unknown): Uint8Array[] {
  if (!Array.isArray(views)) return joined([exposableView(views, "view")]);
  return joined(views.map((view, index) => exposableView(view, `view ${index}`)));
}

function exposableView(view: unknown, name: string): Uint8Array {
  if (!ArrayBuffer.isView(view)) {
    throw new TypeError(`expose: ${name} must be a typed array, a Buffer or a DataView`);
  }
  if (isDetached(view.buffer)) throw detached(`expose: the memory of ${name}`);
  const memory = view.buffer as ArrayBuffer & { readonly resizable?: boolean; readonly growable?: boolean };
  if (memory.resizable === true || memory.growable === true) {
    throw new TypeError(`expose: ${name} must not lie in a resizable buffer: its memory could move`);
  }
  return bytesOf(view);
}

/** The memory of a view, as bytes. */
export function bytesOf(view: ArrayBufferView): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
}

function joined(views: readonly Uint8Array[]): Uint8Array[] {
  const segments = joinNeighbours(views);
  if (segments.length <= maxRegionSegments) return segments;
  throw new RangeError(
    `expose: the views make ${segments.length} segments; the limit is ${maxRegionSegments}`,
  );
}

/** The same bytes in the same order, in as few segments as possible. None of them is empty. */
export function joinNeighbours(views: readonly Uint8Array[]): Uint8Array[] {
  const segments: Uint8Array[] = [];
  for (const view of views) {
    if (view.byteLength === 0) continue;
    const last = segments.at(-1);
    if (last !== undefined && last.buffer === view.buffer && endOf(last) === view.byteOffset) {
      segments[segments.length - 1] = new Uint8Array(
        last.buffer,
        last.byteOffset,
        last.byteLength + view.byteLength,
      );
    } else segments.push(view);
  }
  return segments;
}

function endOf(view: Uint8Array): number {
  return view.byteOffset + view.byteLength;
}

/** The part of the segments from `offset` on. It must lie inside. */
export function sliceSegments(segments: readonly Uint8Array[], offset: number, length: number): Uint8Array[] {
  const parts: Uint8Array[] = [];
  let from = offset;
  let left = length;
  for (const segment of segments) {
    if (left === 0) break;
    if (from >= segment.byteLength) {
      from -= segment.byteLength;
      continue;
    }
    const bytes = Math.min(left, segment.byteLength - from);
    parts.push(new Uint8Array(segment.buffer, segment.byteOffset + from, bytes));
    from = 0;
    left -= bytes;
  }
  return parts;
}

/**
 * Whether the buffer was transferred away. A detached buffer has 0 bytes, as an empty one, but no view can be made of
 * it.
 */
export function isDetached(memory: ArrayBufferLike): boolean {
  if (memory.byteLength > 0) return false;
  try {
    new Uint8Array(memory);
    return false;
  } catch {
    return true;
  }
}

/** Buffers with memory of the addon. Node detaches each of them when its thread ends. */
const buffersOfAddon = new WeakSet<ArrayBuffer>();

/** Records that `buffer` has memory of the addon. */
export function noteOfAddon(buffer: ArrayBuffer): void {
  buffersOfAddon.add(buffer);
}

/**
 * Whether a mark locks a buffer against every detaching. Up to Node 22 it only refuses the transfer to another thread.
 */
function findWhetherMarksLock(): boolean {
  const probe = new ArrayBuffer(1) as ArrayBuffer & { transfer?(): ArrayBuffer };
  workerThreads().markAsUntransferable(probe);
  try {
    probe.transfer?.();
    return false;
  } catch {
    return true;
  }
}
let marksLock: boolean | undefined;

/** Node's module. It loads at first use: most programs expose no memory when they start. */
const workerThreads = () => process.getBuiltinModule("node:worker_threads");

/**
 * Keeps a buffer from being transferred to another thread. Node ends the process when it cannot detach a buffer of the
 * addon. Such buffers therefore get no mark where marks lock. Registrations keep the pages of such a buffer anyway.
 */
export function forbidTransfer(buffer: ArrayBuffer): void {
  marksLock ??= findWhetherMarksLock();
  if (!marksLock || !buffersOfAddon.has(buffer)) workerThreads().markAsUntransferable(buffer);
}

/** The error for detached memory. */
export function detached(what: string): RpcError {
  return new RpcError({
    code: "failed_precondition",
    message: `${what} has been detached: its ArrayBuffer was transferred`,
  });
}

/** The error for memory of a file that has lost bytes. */
export function lostBytes(what: string, origin: RpcError["origin"] = "local"): RpcError {
  return new RpcError({
    code: "data_loss",
    message: `${what} shows a file that has lost bytes: it was truncated, or its storage failed`,
    origin,
  });
}

/** @throws RpcError `out_of_range` that names the range and the length. */
export function assertInside(what: string, offset: number, length: number, byteLength: number): void {
  const whole = Number.isSafeInteger(offset) && Number.isSafeInteger(length) && offset >= 0 && length >= 0;
  if (whole && offset + length <= byteLength) return;
  throw new RpcError({
    code: "out_of_range",
    message: `${what}: offset ${offset} and length ${length} do not lie inside ${byteLength} bytes`,
  });
}

/** How many bytes the views cover together: bytes that several views show count once. */
export function coveredBytes(views: Iterable<Uint8Array>): number {
  const byBuffer = new Map<ArrayBufferLike, Uint8Array[]>();
  for (const view of views) {
    const others = byBuffer.get(view.buffer);
    if (others === undefined) byBuffer.set(view.buffer, [view]);
    else others.push(view);
  }
  let bytes = 0;
  for (const inBuffer of byBuffer.values()) {
    inBuffer.sort((one, other) => one.byteOffset - other.byteOffset);
    let end = 0;
    for (const { byteOffset, byteLength } of inBuffer) {
      const viewEnd = byteOffset + byteLength;
      bytes += Math.max(0, viewEnd - Math.max(end, byteOffset));
      end = Math.max(end, viewEnd);
    }
  }
  return bytes;
}
