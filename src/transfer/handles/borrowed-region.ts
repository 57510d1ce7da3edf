import type { IncomingCall } from "../../call/incoming-call.ts";
import type { Access, Granting } from "../../memory/region-kind.ts";
import type { RemoteRegion } from "../../memory/remote-region.ts";
import type { PeerLink } from "../control/peer-link.ts";
import { type PullType, pull, type Transfer, transfer, transferParts } from "../transfer.ts";
import type {
  LocalMemory,
  PullOptions,
  PutOptions,
  TransferControl,
  TransferOptions,
  TransferPart,
  TransferRange,
} from "../transfer-options.ts";
import { RemoteWord } from "../word.ts";

/** One part of `getv` and `putv` on a borrowed region. */
export interface BorrowedPart extends TransferRange {
  readonly local: LocalMemory;
}

/**
 * A region of another engine, borrowed with its handle: `engine.borrow(handle)`. Read and write it until you dispose
 * it, the lease ends (`deadline_exceeded`), or the owner disposes it (`aborted`).
 *
 * @example
 * await using page = await engine.borrow(shared);
 * const bytes = await page.pull(Uint8Array);
 */
export class BorrowedRegion<A extends Access = Access> implements Disposable, AsyncDisposable {
  /** What the borrower may do. */
  readonly access: Granting<A>;
  /** Length in bytes. */
  readonly byteLength: number;
  readonly #call: IncomingCall;
  readonly #session: PeerLink;
  readonly #remote: RemoteRegion;
  readonly #returned: Promise<void>;

  /** @internal Made by `engine.borrow`. */
  constructor(call: IncomingCall, session: PeerLink, remote: RemoteRegion, onReturned: () => void) {
    this.#call = call;
    this.#session = session;
    this.#remote = remote;
    this.access = remote.access as unknown as Granting<A>;
    this.byteLength = remote.byteLength;
    this.#returned = new Promise((resolve) => {
      call.onAnswered = () => {
        onReturned();
        resolve();
      };
    });
  }

  /**
   * Fires when the borrow ends against the borrower's will. The reason is the RpcError that transfers then reject with.
   */
  get signal(): AbortSignal {
    return this.#call.signal;
  }

  /** Copies from the region into `local`; as `call.get` in a handler. */
  get(local: LocalMemory, options?: TransferOptions): Transfer {
    return transfer("get", this.#session, this.#call, this.#remote, local, options);
  }

  /** Copies `local` into the region; as `call.put` in a handler. */
  put(local: LocalMemory, options?: PutOptions): Transfer {
    return transfer("put", this.#session, this.#call, this.#remote, local, options);
  }

  /** As `get`, for many parts in one transfer. */
  getv(parts: readonly BorrowedPart[], options?: TransferControl): Transfer {
    return transferParts("get", this.#session, this.#call, this.#withRemote(parts), options);
  }

  /** As `put`, for many parts in one transfer. */
  putv(parts: readonly BorrowedPart[], options?: TransferControl): Transfer {
    return transferParts("put", this.#session, this.#call, this.#withRemote(parts), options);
  }

  /** Copies the region into new memory and returns it as `Type`; as `call.pull` in a handler. */
  pull<T extends ArrayBufferView>(Type: PullType<T>, options?: PullOptions): Promise<T> {
    return pull(this.#session, this.#call, this.#remote, Type, options);
  }

  /** A 64-bit word of the region; as `call.word` in a handler. */
  word(byteOffset = 0): RemoteWord {
    return new RemoteWord(this.#call, this.#session, this.#remote, byteOffset);
  }

  /** Returns the region. Its owner is told when the last transfer has ended. Safe to call twice. */
  dispose(): void {
    this.#call.settle({ value: undefined });
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** Returns the region, and waits until the last transfer has ended. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.dispose();
    await this.#returned;
  }

  /** A value that is not an array is rejected where parts are checked. */
  #withRemote(parts: readonly BorrowedPart[]): readonly TransferPart[] {
    if (!Array.isArray(parts)) return parts as never;
    return (parts as readonly BorrowedPart[]).map((part) => ({ ...part, remote: this.#remote }));
  }
}
