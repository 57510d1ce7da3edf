import type { IncomingCall } from "../call/incoming-call.ts";
import { Movement, type TransferEnding, type TransferProgress } from "./movement.ts";
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
import type { TransferRoute } from "./transfer-route.ts";

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
