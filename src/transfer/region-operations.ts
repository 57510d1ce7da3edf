import { RpcError } from "../base/errors/rpc-error.ts";
import { callPromise } from "../call/call-operations.ts";
import { RemoteRegion } from "../memory/remote-region.ts";
import { completionActionOf } from "./completion-action.ts";
import type { PeerLink } from "./control/peer-link.ts";
import type { TransferRoute, TransferScope } from "./control/transfer-route.ts";
import { type Transfer, transfer, transferParts } from "./transfer.ts";
import type { CompletionAction } from "./transfer-operation.ts";
import {
  assertKnown,
  type LocalMemory,
  optionsOf,
  type PullOptions,
  type PutOptions,
  type TransferControl,
  type TransferPart,
} from "./transfer-options.ts";

/** `get` and `put` on a region of a peer, for the handler of the call that it came with, and for its borrower. */
export function transferRegion(
  op: "get" | "put",
  scope: TransferScope,
  session: PeerLink,
  remote: RemoteRegion,
  local: LocalMemory,
  options: PutOptions | undefined,
): Transfer {
  return transfer(
    op,
    session,
    scope,
    remote,
    local,
    options,
    completionActionOf(op, scope, session, options),
  );
}

/** `getv` and `putv` on regions of a peer. */
export function transferRegionParts(
  op: "get" | "put",
  scope: TransferScope,
  session: PeerLink,
  parts: readonly TransferPart[],
  options: TransferControl | undefined,
): Transfer {
  return transferParts(
    op,
    session,
    scope,
    parts,
    options,
    completionActionOf(`${op}v`, scope, session, options),
  );
}

/** `pull`: copies a region of a peer into new memory. */
export function pullRegion<T extends ArrayBufferView>(
  scope: TransferScope,
  session: PeerLink,
  remote: RemoteRegion,
  Type: PullType<T>,
  options: PullOptions | undefined,
): Promise<T> {
  return callPromise(scope.operations, () =>
    pull(session, scope, remote, Type, options, completionActionOf("pull", scope, session, options)),
  );
}

/** The class that `pull` returns: any typed array, `Buffer` or `DataView`. */
export interface PullType<T extends ArrayBufferView> {
  readonly prototype: T;
}

const TypedArray = Object.getPrototypeOf(Uint8Array) as abstract new () => ArrayBufferView;

/**
 * Copies a peer's memory into new memory, seen as `Type`.
 *
 * @throws as `get`; RpcError `invalid_argument` when the length is not a multiple of the element size,
 * `resource_exhausted` when there is no memory for it.
 */
export async function pull<T extends ArrayBufferView>(
  route: TransferRoute,
  scope: TransferScope,
  remote: RemoteRegion,
  Type: PullType<T>,
  options: PullOptions = {},
  completionAction?: CompletionAction,
): Promise<T> {
  assertKnown("pull", options, optionsOf.pull);
  if (!(remote instanceof RemoteRegion))
    throw new TypeError("pull: the first argument must be a region from this call's input");
  const elementBytes = elementBytesOf(Type);
  const { offset = 0 } = options;
  const { length = remote.byteLength - offset } = options;
  if (length % elementBytes !== 0) {
    throw new RpcError({
      code: "invalid_argument",
      message: `pull: ${length} bytes are not a multiple of the element size, ${elementBytes} bytes`,
      origin: "local",
    });
  }
  // Before memory is allocated: the length of the region is the peer's word.
  if (!(Number.isSafeInteger(length) && length >= 0 && offset + length <= remote.byteLength)) {
    throw new RpcError({
      code: "out_of_range",
      message: `pull: offset ${offset} and length ${length} do not lie inside ${remote.byteLength} bytes`,
      origin: "local",
    });
  }
  const memory = allocate(length);
  await transfer(
    "get",
    route,
    scope,
    remote,
    new Uint8Array(memory),
    { ...options, offset, length },
    completionAction,
  );
  return viewAs(Type, memory);
}

function elementBytesOf(Type: unknown): number {
  const isClass = typeof Type === "function";
  if (isClass && (Type === DataView || Type.prototype instanceof TypedArray))
    return (Type as { readonly BYTES_PER_ELEMENT?: number }).BYTES_PER_ELEMENT ?? 1;
  throw new TypeError("pull: the type must be the class of a typed array, Buffer or DataView");
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
      message: `pull: the system has no memory for ${bytes} bytes`,
      origin: "local",
      cause,
    });
  }
}
