import type { IncomingCall } from "../call/incoming-call.ts";
import { fabricError } from "../errors/fabric-error.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { access, type Port } from "../fabric/port.ts";
import { moveRun } from "./chunks.ts";
import { assertInside, detached, isDetached, Region } from "./region.ts";
import { grants } from "./region-kind.ts";
import { RemoteRegion } from "./remote-region.ts";

/** Where to copy from and to, and how much. */
export interface TransferOptions {
  /** First byte of the remote region to touch. Default 0. */
  readonly offset?: number;
  /** How many bytes. Default: all of the local memory. */
  readonly length?: number;
  /** First byte of the local memory to touch. Default 0. */
  readonly localOffset?: number;
}

const knownOptions = ["offset", "length", "localOffset"];

/** Local memory: a view, or a region of this engine (any access: its owner may do what it likes). */
export type LocalMemory = ArrayBufferView | Region;

/** The way to the peer a remote region belongs to. */
export interface TransferRoute {
  readonly port: Port;
  readonly address: number;
  /** Makes progress soon: something was posted. */
  kick(): void;
}

/**
 * Copies between local memory and a caller's region, one-sided: `get` pulls into `local`, `put` pushes from it. Bounds, access and liveness
 * are checked before anything is posted, because not every provider checks them (shm reports success for a put with a bad key).
 *
 * Rejects at once when the call ends, and then the memory stays pinned until the provider is done with it. Resolves to the number of bytes
 * copied, with the data in place.
 */
export async function transfer(
  op: "get" | "put",
  route: TransferRoute,
  call: IncomingCall,
  remote: RemoteRegion,
  local: LocalMemory,
  options: TransferOptions = {},
): Promise<number> {
  if (local instanceof Region && local.disposed) {
    throw new RpcError({
      code: "failed_precondition",
      message: `${op}: the local region has been disposed`,
      origin: "local",
    });
  }
  const view = local instanceof Region ? local.bytes : local;
  assertMemory(op, remote, view, options);
  // Its length is 0 now: without this, nothing would move and the call would succeed.
  if (isDetached(view.buffer)) throw detached(`${op}: the local memory`);
  const { offset = 0, localOffset = 0, length = view.byteLength - localOffset } = options;
  assertInside(`${op}: local memory`, localOffset, length, view.byteLength);
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
  call.beginTransfer();
  if (length === 0) {
    call.endTransfer();
    return 0;
  }
  return new Promise<number>((resolve, reject) => {
    const signal = call.signal;
    const onAbort = () => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    run(op, route, remote, view, offset, localOffset, length)
      .then(resolve, reject)
      .finally(() => {
        signal.removeEventListener("abort", onAbort);
        call.endTransfer();
      });
  });
}

async function run(
  op: "get" | "put",
  route: TransferRoute,
  remote: RemoteRegion,
  view: ArrayBufferView,
  offset: number,
  localOffset: number,
  length: number,
): Promise<number> {
  const { port, address } = route;
  const segment = remote.segments[0];
  if (segment === undefined || remote.segments.length > 1) throw new Error("one segment only, for now");
  const memory = port.register(view.buffer, view.byteOffset + localOffset, length, access.local);
  route.kick();
  try {
    const result = await moveRun(
      {
        op: op === "get" ? "read" : "write",
        port,
        address,
        local: memory,
        localOffset: 0,
        bytes: length,
        key: segment.key,
        remote: segment.address + BigInt(offset),
      },
      () => !remote.call.open,
    );
    if (result.status === 0 && result.bytes === length) return length;
    if (result.status === 0) {
      throw new RpcError({
        code: "failed_precondition",
        message: `${op} of ${length} bytes stopped after ${result.bytes}: the call has ended, its regions are revoked`,
        origin: "local",
      });
    }
    throw fabricError({
      provider: port.provider,
      op: op === "get" ? "fi_read" : "fi_write",
      code: result.status,
      message: `${op} of ${length} bytes ended after ${result.bytes}`,
    });
  } finally {
    port.deregister(memory.index);
  }
}

function assertMemory(
  op: string,
  remote: unknown,
  view: unknown,
  options: object,
): asserts view is ArrayBufferView {
  if (!(remote instanceof RemoteRegion)) {
    throw new TypeError(`${op}: the remote side must be a region that came with this call's input`);
  }
  if (!ArrayBuffer.isView(view)) {
    throw new TypeError(`${op}: local memory must be a typed array, a Buffer, a DataView or a region`);
  }
  for (const name of Object.keys(options)) {
    if (!knownOptions.includes(name)) {
      throw new TypeError(`${op}: unknown option "${name}"; known are ${knownOptions.join(", ")}`);
    }
  }
}
