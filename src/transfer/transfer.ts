import { CallSettler } from "../call/call-operations.ts";
import type { RemoteRegion } from "../memory/remote-region.ts";
import type { TransferRoute, TransferScope } from "./control/transfer-route.ts";
import { type CompletionAction, TransferOperation, type TransferProgress } from "./transfer-operation.ts";
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
export class Transfer extends Promise<number> {
  readonly #movement: TransferOperation;
  readonly #settler: CallSettler<number>;

  /** `then` returns a plain promise. */
  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  /** @internal Made by `call.get` and the like. */
  constructor(movement: TransferOperation) {
    let settler!: CallSettler<number>;
    super((resolve, reject) => {
      settler = new CallSettler<number>(movement.operations, resolve, reject);
      movement.begin(settler);
    });
    settler.attach(this);
    this.#movement = movement;
    this.#settler = settler;
  }

  // biome-ignore lint/suspicious/noThenProperty: it notes that somebody awaits the transfer
  override then<A = number, B = never>(
    onResolved?: ((bytes: number) => A | PromiseLike<A>) | null,
    // biome-ignore lint/suspicious/noExplicitAny: as in the class of all promises
    onRejected?: ((reason: any) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.#settler.onAwaited();
    return super.then(onResolved, onRejected);
  }

  /**
   * Progress, each time bytes have moved since the last look. A slow reader misses steps, but not the last one. It ends
   * with the transfer, however that ends. It costs nothing while nobody reads it.
   */
  get progress(): AsyncIterable<TransferProgress> {
    const movement = this.#movement;
    return { [Symbol.asyncIterator]: () => movement.steps() };
  }

  /**
   * Settles when none of the transfer is in flight and the local memory is free, with the number of bytes that have
   * surely moved. Never rejects.
   */
  get landed(): Promise<number> {
    return this.#movement.landed();
  }
}

/**
 * Copies between local memory and a region of a peer, one-sided: `get` reads the region, `put` writes it. Bounds,
 * access and liveness are checked before anything is posted, because not every provider checks them. `completionAction`
 * runs before the transfer resolves.
 */
export function transfer(
  op: "get" | "put",
  route: TransferRoute,
  scope: TransferScope,
  remote: RemoteRegion,
  local: LocalMemory,
  options: PutOptions = {},
  completionAction?: CompletionAction,
): Transfer {
  const check = () => {
    assertControl(op, options, optionsOf[op]);
    const { offset, localOffset, length } = options;
    return [checkPart(op, scope, { remote, local, offset, localOffset, length })];
  };
  return new Transfer(new TransferOperation(op, route, scope, options, check, completionAction));
}

/** As `transfer`, for many pairs of memory at once. */
export function transferParts(
  op: "get" | "put",
  route: TransferRoute,
  scope: TransferScope,
  parts: readonly TransferPart[],
  options: TransferControl = {},
  completionAction?: CompletionAction,
): Transfer {
  const name = `${op}v`;
  const check = () => {
    assertControl(name, options, optionsOf.vector);
    if (!Array.isArray(parts)) throw new TypeError(`${name}: parts must be an array`);
    if (parts.length > maxParts)
      throw new RangeError(`${name}: parts has ${parts.length} entries; the limit is ${maxParts}`);
    return parts.map((part, index) => {
      assertKnown(`${name}: part ${index}`, part, optionsOf.part);
      return checkPart(op, scope, part);
    });
  };
  return new Transfer(new TransferOperation(op, route, scope, options, check, completionAction));
}
