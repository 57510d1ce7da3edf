import type { IncomingCall } from "../call/incoming-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { TransferEnding } from "./movement.ts";
import { RemoteRegion } from "./remote-region.ts";
import { transfer } from "./transfer.ts";
import { assertKnown, optionsOf, type PullOptions } from "./transfer-options.ts";
import type { TransferRoute } from "./transfer-route.ts";

/** The class of what `pull` is to return: any typed array's, `Buffer` or `DataView`. */
export interface PullType<T extends ArrayBufferView> {
  readonly prototype: T;
}

const TypedArray = Object.getPrototypeOf(Uint8Array) as abstract new () => ArrayBufferView;

/**
 * Copies a caller's memory into memory of its own, seen as what was asked for.
 *
 * @throws as `get`; RpcError `invalid_argument` when the length is not a whole number of elements.
 */
export async function pull<T extends ArrayBufferView>(
  route: TransferRoute,
  call: IncomingCall,
  remote: RemoteRegion,
  Type: PullType<T>,
  options: PullOptions = {},
  ending?: TransferEnding,
): Promise<T> {
  assertKnown("pull", options, optionsOf.pull);
  if (!(remote instanceof RemoteRegion))
    throw new TypeError("pull: the remote side must be a region that came with this call's input");
  const elementBytes = elementBytesOf(Type);
  const { offset = 0 } = options;
  const { length = remote.byteLength - offset } = options;
  if (length % elementBytes !== 0) {
    throw new RpcError({
      code: "invalid_argument",
      message: `pull: ${length} bytes are no whole number of elements of ${elementBytes} bytes`,
      origin: "local",
    });
  }
  // Before memory is taken for it: a peer says how long its region is.
  if (!(Number.isSafeInteger(length) && length >= 0 && offset + length <= remote.byteLength)) {
    throw new RpcError({
      code: "out_of_range",
      message: `pull: offset ${offset} and length ${length} do not lie inside ${remote.byteLength} bytes`,
      origin: "local",
    });
  }
  const memory = allocate(length);
  await transfer("get", route, call, remote, new Uint8Array(memory), { ...options, offset, length }, ending);
  return viewAs(Type, memory);
}

function elementBytesOf(Type: unknown): number {
  const isClass = typeof Type === "function";
  if (isClass && (Type === DataView || Type.prototype instanceof TypedArray))
    return (Type as { readonly BYTES_PER_ELEMENT?: number }).BYTES_PER_ELEMENT ?? 1;
  throw new TypeError("pull: the type must be a typed array's class, Buffer or DataView");
}

function viewAs<T extends ArrayBufferView>(Type: PullType<T>, memory: ArrayBuffer): T {
  if ((Type as unknown) === Buffer) return Buffer.from(memory) as unknown as T;
  return new (Type as unknown as new (memory: ArrayBuffer) => T)(memory);
}

function allocate(bytes: number): ArrayBuffer {
  try {
    return new ArrayBuffer(bytes);
  } catch (cause) {
    throw new RpcError({
      code: "resource_exhausted",
      message: `pull: there is no memory for ${bytes} bytes`,
      origin: "local",
      cause,
    });
  }
}
