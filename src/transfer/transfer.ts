/*
 * The room `transfer`: moves bytes between memory of this side and regions of the peer: get, put and handles.
 * Promises: bytes move within the rights and bounds of a region, while its call is open. A transfer settles when
 * nothing touches its memory any more.
 * Takes: regions and registrations from `memory`, one-sided operations from `fabric`, the state of the call from
 * `call`.
 */

import { RpcError } from "../base/errors/rpc-error.ts";
import { checkOptions } from "../base/options/options.ts";
import { CallPromise, callPromise } from "../call/call-operations.ts";
import { RemoteRegion } from "../memory/remote-region.ts";
import type { PeerLink, TransferScope } from "./control/peer-link.ts";
import { TransferOperation, type TransferProgress } from "./transfer-operation.ts";
import {
  type LocalMemory,
  maxParts,
  type PullOptions,
  type PutOptions,
  type TransferControl,
  type TransferPart,
  transferFields,
} from "./transfer-options.ts";
import { checkPart } from "./transfer-part.ts";

/**
 * A transfer in progress: a promise of the number of bytes, which resolves when all of them are in place.
 *
 * It rejects at once when the call ends, the signal fires or the time limit passes. The local memory then stays in use
 * until `landed` settles, because posted chunks cannot be recalled.
 *
 * @example
 * const transfer = call.get(region, memory);
 * for await (const { bytes, remaining } of transfer.progress) console.log(`${bytes} of ${bytes + remaining} bytes`);
 * await transfer;
 */
export class Transfer extends CallPromise<number> {
  readonly #operation: TransferOperation;

  /** @internal Made by `call.get` and similar functions. */
  constructor(operation: TransferOperation) {
    super(operation.operations, (settler) => operation.begin(settler));
    this.#operation = operation;
  }

  /**
   * Progress: one step for each read after bytes have moved. A slow reader misses steps, but not the last one. It ends
   * with the transfer, also after a failure. Without a reader it costs nothing.
   */
  get progress(): AsyncIterable<TransferProgress> {
    const operation = this.#operation;
    return { [Symbol.asyncIterator]: () => operation.steps() };
  }

  /**
   * Settles when no chunk of the transfer is in flight and the local memory is free, with the number of bytes that have
   * certainly moved. Never rejects.
   */
  get landed(): Promise<number> {
    return this.#operation.landed();
  }
}

/**
 * Copies between local memory and a region of a peer, one-sided: `get` reads the region, `put` writes it. Bounds,
 * access and liveness are checked before anything is posted, because not every provider checks them.
 */
export function transfer(
  op: "get" | "put",
  peer: PeerLink,
  scope: TransferScope,
  remote: RemoteRegion,
  local: LocalMemory,
  options: PutOptions = {},
): Transfer {
  const check = () => {
    checkOptions(op, options, transferFields[op]);
    const { offset, localOffset, length } = options;
    return [checkPart(op, scope, { remote, local, offset, localOffset, length })];
  };
  return new Transfer(new TransferOperation(op, peer, scope, options, check));
}

/** As `transfer`, for many pairs of memory at once: `getv` and `putv`. */
export function transferParts(
  op: "get" | "put",
  peer: PeerLink,
  scope: TransferScope,
  parts: readonly TransferPart[],
  options: TransferControl = {},
): Transfer {
  const name = `${op}v`;
  const check = () => {
    checkOptions(name, options, transferFields.vector);
    if (!Array.isArray(parts)) throw new TypeError(`${name}: parts must be an array`);
    if (parts.length > maxParts)
      throw new RangeError(`${name}: parts has ${parts.length} entries; the limit is ${maxParts}`);
    return parts.map((part, index) => {
      checkOptions(`${name}: part ${index}`, part, transferFields.part);
      return checkPart(op, scope, part);
    });
  };
  return new Transfer(new TransferOperation(op, peer, scope, options, check));
}

const TypedArray = Object.getPrototypeOf(Uint8Array) as abstract new () => ArrayBufferView;

/**
 * Copies a peer's memory into new memory, seen as `Type`.
 *
 * @throws as `get`; RpcError `invalid_argument` when the length is not a multiple of the element size,
 * `resource_exhausted` when there is no memory for it.
 */
export function pull<T extends ArrayBufferView>(
  peer: PeerLink,
  scope: TransferScope,
  remote: RemoteRegion,
  Type: { readonly prototype: T },
  options: PullOptions = {},
): Promise<T> {
  return callPromise(scope.operations, () => pullInto(peer, scope, remote, Type, options));
}

async function pullInto<T extends ArrayBufferView>(
  peer: PeerLink,
  scope: TransferScope,
  remote: RemoteRegion,
  Type: { readonly prototype: T },
  options: PullOptions,
): Promise<T> {
  checkOptions("pull", options, transferFields.pull);
  if (!(remote instanceof RemoteRegion))
    throw new TypeError("pull: the first argument must be a region from this call's input");
  const elementBytes = elementBytesOf(Type);
  const { offset = 0 } = options;
  const { length = remote.byteLength - offset } = options;
  if (length % elementBytes !== 0) {
    throw new RpcError({
      code: "invalid_argument",
      message: `pull: ${length} bytes are not a multiple of the element size, ${elementBytes} bytes`,
    });
  }
  // Before memory is allocated: the peer sent the length of the region.
  if (!(Number.isSafeInteger(length) && length >= 0 && offset + length <= remote.byteLength)) {
    throw new RpcError({
      code: "out_of_range",
      message: `pull: offset ${offset} and length ${length} do not lie inside ${remote.byteLength} bytes`,
    });
  }
  const memory = allocate(length);
  await transfer("get", peer, scope, remote, new Uint8Array(memory), { ...options, offset, length });
  return viewAs(Type, memory);
}

function elementBytesOf(Type: unknown): number {
  const isClass = typeof Type === "function";
  if (isClass && (Type === DataView || Type.prototype instanceof TypedArray))
    return (Type as { readonly BYTES_PER_ELEMENT?: number }).BYTES_PER_ELEMENT ?? 1;
  throw new TypeError("pull: the type must be the class of a typed array, Buffer or DataView");
}

function viewAs<T extends ArrayBufferView>(Type: { readonly prototype: T }, memory: ArrayBuffer): T {
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
      cause,
    });
  }
}
