import type { PullType } from "../bulk/pull.ts";
import type { Access, Granting } from "../bulk/region-kind.ts";
import type { RemoteRegion } from "../bulk/remote-region.ts";
import type { Transfer } from "../bulk/transfer.ts";
import type {
  LocalMemory,
  PullOptions,
  PutOptions,
  TransferControl,
  TransferOptions,
  TransferPart,
  TransferRange,
} from "../bulk/transfer-options.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import type { Session } from "../session/session.ts";
import { move, moveParts, movePulled } from "./moves.ts";
import { RemoteWord } from "./word.ts";

/** One pair of memory for a borrowed region's `getv` and `putv`. */
export interface BorrowedPart extends TransferRange {
  readonly local: LocalMemory;
}

/**
 * A region of another engine's, borrowed by a handle: to be read and written until it is disposed, its lease is over (`deadline_exceeded`), or its
 * owner takes it back (`aborted`).
 */
export class BorrowedRegion<A extends Access = Access> implements Disposable, AsyncDisposable {
  readonly access: Granting<A>;
  readonly byteLength: number;
  readonly #call: IncomingCall;
  readonly #session: Session;
  readonly #remote: RemoteRegion;
  readonly #returned: Promise<void>;

  /** @internal Made by `engine.borrow`. */
  constructor(call: IncomingCall, session: Session, remote: RemoteRegion, onReturned: () => void) {
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

  /** Fires when it ends against the borrower's will; its reason is the RpcError that transfers then reject with. */
  get signal(): AbortSignal {
    return this.#call.signal;
  }

  /** Pulls from the region into `local`; as `call.get` in a handler. */
  get(local: LocalMemory, options?: TransferOptions): Transfer {
    return move("get", this.#call, this.#session, this.#remote, local, options);
  }

  /** Pushes `local` into the region; as `call.put` in a handler. */
  put(local: LocalMemory, options?: PutOptions): Transfer {
    return move("put", this.#call, this.#session, this.#remote, local, options);
  }

  /** As `get`, for many parts in one transfer. */
  getv(parts: readonly BorrowedPart[], options?: TransferControl): Transfer {
    return moveParts("get", this.#call, this.#session, this.#withRemote(parts), options);
  }

  /** As `put`, for many parts in one transfer. */
  putv(parts: readonly BorrowedPart[], options?: TransferControl): Transfer {
    return moveParts("put", this.#call, this.#session, this.#withRemote(parts), options);
  }

  /** Pulls the region into memory of its own, as what is asked for; as `call.pull` in a handler. */
  pull<T extends ArrayBufferView>(Type: PullType<T>, options?: PullOptions): Promise<T> {
    return movePulled(this.#call, this.#session, this.#remote, Type, options);
  }

  /** A 64-bit word of the region; as `call.word` in a handler. */
  word(byteOffset = 0): RemoteWord {
    return new RemoteWord(this.#call, this.#session, this.#remote, byteOffset);
  }

  /** Gives the region back: its owner hears when the last transfer has ended. Safe to call twice. */
  dispose(): void {
    this.#call.settle({ value: undefined });
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** Gives the region back, and waits until the last transfer has ended. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.dispose();
    await this.#returned;
  }

  /** What is no array of parts is refused where parts are checked. */
  #withRemote(parts: readonly BorrowedPart[]): readonly TransferPart[] {
    if (!Array.isArray(parts)) return parts as never;
    return (parts as readonly BorrowedPart[]).map((part) => ({ ...part, remote: this.#remote }));
  }
}
