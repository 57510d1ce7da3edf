import { randomBytes } from "node:crypto";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { type FieldsOf, instance, milliseconds } from "../../base/options/options.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";
import { RegionHandle, tokenOf } from "../../memory/region-handle.ts";
import type { Access, Granting } from "../../memory/region-kind.ts";
import { RemoteRegion } from "../../memory/remote-region.ts";
import { builtin } from "../../wire/builtin.ts";
import { builtinMethod, fail, isUint64, type ServedMethod } from "../control/control-method.ts";
import type { PeerLink } from "../control/peer-link.ts";
import { pull, type Transfer, transfer, transferParts } from "../transfer.ts";
import type {
  LocalMemory,
  PullOptions,
  PutOptions,
  TransferControl,
  TransferOptions,
  TransferPart,
  TransferRange,
} from "../transfer-options.ts";

/** Options of `engine.borrow`. */
export interface BorrowOptions {
  /** Cancels: the promise rejects at once. Default: none. */
  readonly signal?: AbortSignal | undefined;
  /** Time limit for reaching the owner and its answer, in milliseconds. Default: the engine's `connectTimeoutMs`. */
  readonly timeoutMs?: number | undefined;
}

export const borrowFields = {
  signal: instance(AbortSignal),
  timeoutMs: milliseconds(),
} satisfies FieldsOf<BorrowOptions>;

/** A connection to a region's owner, released when the region is returned. */
export interface OwnerLink {
  readonly peer: PeerLink;
  release(): void;
}

/** A borrower that waits for the region of its ticket. */
interface Expected {
  readonly peer: PeerLink;
  readonly handle: RegionHandle;
  readonly onReturned: () => void;
  resolve(region: BorrowedRegion): void;
  reject(error: RpcError): void;
}

/** The regions that an engine borrows from others. */
export class Borrowing {
  readonly #expected = new Map<bigint, Expected>();

  /** Serves `grant`: the owner sends the region of a ticket. The call stays open until the region is returned. */
  readonly grantMethod: ServedMethod = builtinMethod<{
    readonly ticket: bigint;
    readonly region: RemoteRegion;
  }>(
    "grant",
    ([ticket, region]) =>
      isUint64(ticket) && region instanceof RemoteRegion ? { ticket, region } : undefined,
    ({ ticket, region }, call, peer) => {
      const expected = this.#expected.get(ticket);
      if (expected === undefined || expected.peer !== peer)
        return fail(call, "not_found", "no borrower waits for this region");
      const { handle, onReturned } = expected;
      if (region.byteLength !== handle.byteLength || region.access !== handle.access) {
        expected.reject(
          new RpcError({
            code: "invalid_argument",
            message: "borrow: the length or access of the owner's region differs from the handle's",
          }),
        );
        return fail(call, "invalid_argument", "the length or access of the region differs from the handle's");
      }
      // One region for each ticket.
      this.#expected.delete(ticket);
      call.wording = lease;
      expected.resolve(new BorrowedRegion(call, peer, region, onReturned));
    },
  );

  /**
   * Asks the owner behind `link` for the region. The link is released when the region is returned, or when the borrow
   * fails.
   */
  async borrow(
    handle: RegionHandle,
    link: OwnerLink,
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<BorrowedRegion> {
    const { peer } = link;
    const ticket = randomBytes(8).readBigUInt64LE();
    let released = false;
    const onReturned = () => {
      if (released) return;
      released = true;
      link.release();
    };
    const coming = new Promise<BorrowedRegion>((resolve, reject) => {
      this.#expected.set(ticket, { peer, handle, onReturned, resolve, reject });
    });
    coming.catch(() => {});
    let here: BorrowedRegion | undefined;
    coming.then(
      (region) => {
        here = region;
      },
      () => {},
    );
    const cancelTimer = peer.clock.timer(timeoutMs, () =>
      this.#expected.get(ticket)?.reject(
        new RpcError({
          code: "deadline_exceeded",
          message: "borrow: the owner did not send the region in time",
        }),
      ),
    );
    try {
      const input = [tokenOf(handle), handle.incarnation, ticket];
      await peer.request(builtin.borrow, input, { timeoutMs, signal });
      return await coming;
    } catch (error) {
      here?.dispose();
      onReturned();
      throw error;
    } finally {
      cancelTimer();
      this.#expected.delete(ticket);
    }
  }

  /** The session ended: its owners send no more regions. */
  onSessionEnded(peer: PeerLink, reason: RpcError): void {
    for (const expected of this.#expected.values()) if (expected.peer === peer) expected.reject(reason);
  }
}

/** The ends of a borrow, in words for the borrower. */
const lease = {
  cancelled: { code: "aborted", message: "the owner of the borrowed region has disposed it" },
  outOfTime: { code: "deadline_exceeded", message: "the lease of the borrowed region has ended" },
  ended: { code: "failed_precondition", message: "the borrowed region has been returned" },
} as const;

/**
 * @throws TypeError when `handle` is not a RegionHandle; RpcError `failed_precondition` for a handle of this engine,
 * `deadline_exceeded` when its lease has ended.
 */
export function assertBorrowable(handle: unknown, incarnation: bigint): asserts handle is RegionHandle {
  if (!(handle instanceof RegionHandle))
    throw new TypeError("borrow: the first argument must be a RegionHandle");
  if (handle.incarnation === incarnation) {
    throw new RpcError({ code: "failed_precondition", message: "borrow: the region belongs to this engine" });
  }
  if (handle.leaseMs > 0) return;
  throw new RpcError({ code: "deadline_exceeded", message: "borrow: the lease of the handle has ended" });
}

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
  readonly #peer: PeerLink;
  readonly #remote: RemoteRegion;
  readonly #returned: Promise<void>;

  /** @internal Made by `engine.borrow`. */
  constructor(call: IncomingCall, peer: PeerLink, remote: RemoteRegion, onReturned: () => void) {
    this.#call = call;
    this.#peer = peer;
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
    return transfer("get", this.#peer, this.#call, this.#remote, local, options);
  }

  /** Copies `local` into the region; as `call.put` in a handler. */
  put(local: LocalMemory, options?: PutOptions): Transfer {
    return transfer("put", this.#peer, this.#call, this.#remote, local, options);
  }

  /** As `get`, for many parts in one transfer. */
  getv(parts: readonly BorrowedPart[], options?: TransferControl): Transfer {
    return transferParts("get", this.#peer, this.#call, this.#withRemote(parts), options);
  }

  /** As `put`, for many parts in one transfer. */
  putv(parts: readonly BorrowedPart[], options?: TransferControl): Transfer {
    return transferParts("put", this.#peer, this.#call, this.#withRemote(parts), options);
  }

  /** Copies the region into new memory and returns it as `Type`; as `call.pull` in a handler. */
  pull<T extends ArrayBufferView>(Type: { readonly prototype: T }, options?: PullOptions): Promise<T> {
    return pull(this.#peer, this.#call, this.#remote, Type, options);
  }

  /** Returns the region. Its owner is notified when the last transfer has ended. Safe to call twice. */
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

  /** A value that is not an array is rejected later, by the check of the parts. */
  #withRemote(parts: readonly BorrowedPart[]): readonly TransferPart[] {
    if (!Array.isArray(parts)) return parts as never;
    return (parts as readonly BorrowedPart[]).map((part) => ({ ...part, remote: this.#remote }));
  }
}
