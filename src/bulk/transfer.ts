import type { Clock } from "../call/clock.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import type { RpcError } from "../errors/rpc-error.ts";
import type { Port } from "../fabric/port.ts";
import { Movement, type TransferEnding } from "./movement.ts";
import type { RemoteRegion } from "./remote-region.ts";
import {
  assertControl,
  assertKnown,
  type LocalMemory,
  maxParts,
  optionsOf,
  type PutOptions,
  type TransferControl,
  type TransferPart,
} from "./transfer-options.ts";
import { checkPart } from "./transfer-part.ts";

export type {
  LocalMemory,
  PullOptions,
  PutOptions,
  TransferControl,
  TransferOptions,
  TransferPart,
} from "./transfer-options.ts";

/** What a provider has refused without a reason: bytes `offset` to `offset + bytes` of the loan by this key. */
export interface RefusedTransfer {
  readonly key: bigint;
  readonly needed: "read" | "write";
  readonly offset: number;
  readonly bytes: number;
}

/** The way to the peer a remote region belongs to. */
export interface TransferRoute {
  readonly port: Port;
  readonly address: number;
  readonly clock: Clock;
  /** Makes progress soon: something was posted. */
  kick(): void;
  /** A transfer is over, so many bytes have surely moved. */
  onLanded(op: "get" | "put", bytes: number): void;
  /** Asks the region's owner why its provider refused a transfer. Nothing, when it knows no reason. */
  explain?: ((refused: RefusedTransfer) => Promise<RpcError | undefined>) | undefined;
}

/** How far a transfer is. */
export interface TransferProgress {
  /** How many bytes have surely moved. */
  readonly bytes: number;
  /** How many are still to come. */
  readonly remaining: number;
  /** On average since the transfer began. */
  readonly bytesPerSecond: number;
}

/**
 * A transfer under way: a promise of the number of bytes, which resolves when all of them are in place.
 *
 * It rejects at once when the call ends, the signal fires or the time is up. The local memory then stays in use until `landed` settles: what has
 * been posted cannot be recalled.
 */
export class Transfer extends Promise<number> {
  readonly #movement: Movement;

  /** What `then` gives is a plain promise. */
  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  /** @internal Made by `call.get` and the like. */
  constructor(movement: Movement) {
    super((resolve, reject) => movement.begin(resolve, reject));
    this.#movement = movement;
  }

  /**
   * How far it is, each time something has moved since the reader last looked; a slow reader misses steps, not the last one. Ends with the transfer,
   * whatever its end; nothing is done for it while nobody reads.
   */
  get progress(): AsyncIterable<TransferProgress> {
    const movement = this.#movement;
    return { [Symbol.asyncIterator]: () => movement.steps() };
  }

  /**
   * Settles when nothing of the transfer is under way any more and the local memory is free: with how many bytes have surely moved. Never rejects.
   */
  get landed(): Promise<number> {
    return this.#movement.landed();
  }
}

export type { TransferEnding } from "./movement.ts";

/**
 * Copies between local memory and a caller's region, one-sided: `get` pulls into `local`, `put` pushes from it. Bounds, access and liveness
 * are checked before anything is posted, because not every provider checks them. `ending` is done before it resolves.
 */
export function transfer(
  op: "get" | "put",
  route: TransferRoute,
  call: IncomingCall,
  remote: RemoteRegion,
  local: LocalMemory,
  options: PutOptions = {},
  ending?: TransferEnding,
): Transfer {
  const check = () => {
    assertControl(op, options, optionsOf[op]);
    const { offset, localOffset, length } = options;
    return [checkPart(op, call, { remote, local, offset, localOffset, length })];
  };
  return new Transfer(new Movement(op, route, call, options, check, ending));
}

/** As `transfer`, for many pairs of memory in one. */
export function transferParts(
  op: "get" | "put",
  route: TransferRoute,
  call: IncomingCall,
  parts: readonly TransferPart[],
  options: TransferControl = {},
  ending?: TransferEnding,
): Transfer {
  const name = `${op}v`;
  const check = () => {
    assertControl(name, options, optionsOf.vector);
    if (!Array.isArray(parts)) throw new TypeError(`${name}: parts must be an array`);
    if (parts.length > maxParts)
      throw new RangeError(`${name}: at most ${maxParts} parts in one transfer, these are ${parts.length}`);
    return parts.map((part, index) => {
      assertKnown(`${name}: part ${index}`, part, optionsOf.part);
      return checkPart(op, call, part);
    });
  };
  return new Transfer(new Movement(op, route, call, options, check, ending));
}
