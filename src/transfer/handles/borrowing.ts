import { randomBytes } from "node:crypto";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { type FieldsOf, instance, milliseconds } from "../../base/options/options.ts";
import { RegionHandle, tokenOf } from "../../memory/region-handle.ts";
import { RemoteRegion } from "../../memory/remote-region.ts";
import { builtin } from "../../wire/builtin.ts";
import type { ServedMethod } from "../control/control-method.ts";
import { builtinMethod, fail, isUint64 } from "../control/control-method.ts";
import type { PeerLink } from "../control/peer-link.ts";
import { BorrowedRegion } from "./borrowed-region.ts";

/** Options of `engine.borrow`. */
export interface BorrowOptions {
  /** Cancels: the promise rejects at once. Default: none. */
  readonly signal?: AbortSignal;
  /** Time limit for reaching the owner and its answer, in milliseconds. Default: the engine's `connectTimeoutMs`. */
  readonly timeoutMs?: number;
}

export const borrowFields = {
  signal: instance(AbortSignal),
  timeoutMs: milliseconds(),
} satisfies FieldsOf<BorrowOptions>;

/** A connection to a region's owner, released when the region is returned. */
export interface OwnerLink {
  readonly session: PeerLink;
  release(): void;
}

/** A borrower that waits for the region of its ticket. */
interface Expected {
  readonly session: PeerLink;
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
    ({ ticket, region }, call, session) => {
      const expected = this.#expected.get(ticket);
      if (expected === undefined || expected.session !== session)
        return fail(call, "not_found", "no borrower waits for this region");
      const { handle, onReturned } = expected;
      if (region.byteLength !== handle.byteLength || region.access !== handle.access) {
        expected.reject(
          new RpcError({
            code: "invalid_argument",
            message: "borrow: the length or access of the owner's region differs from the handle's",
            origin: "local",
          }),
        );
        return fail(call, "invalid_argument", "the length or access of the region differs from the handle's");
      }
      // One region for each ticket.
      this.#expected.delete(ticket);
      call.wording = lease;
      expected.resolve(new BorrowedRegion(call, session, region, onReturned));
    },
  );

  /**
   * Asks the owner behind `link` for the region. The link is released when the region is returned, or when there is
   * none.
   */
  async borrow(
    handle: RegionHandle,
    link: OwnerLink,
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<BorrowedRegion> {
    const { session } = link;
    const ticket = randomBytes(8).readBigUInt64LE();
    let released = false;
    const onReturned = () => {
      if (released) return;
      released = true;
      link.release();
    };
    const coming = new Promise<BorrowedRegion>((resolve, reject) => {
      this.#expected.set(ticket, { session, handle, onReturned, resolve, reject });
    });
    coming.catch(() => {});
    let here: BorrowedRegion | undefined;
    coming.then(
      (region) => {
        here = region;
      },
      () => {},
    );
    const cancelTimer = session.clock.timer(timeoutMs, () =>
      this.#expected.get(ticket)?.reject(
        new RpcError({
          code: "deadline_exceeded",
          message: "borrow: the owner did not send the region in time",
          origin: "local",
        }),
      ),
    );
    try {
      const input = [tokenOf(handle), handle.incarnation, ticket];
      await session.request(builtin.borrow, input, { timeoutMs, signal });
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

  /** The session ended: its owners send nothing any more. */
  onSessionEnded(session: PeerLink, reason: RpcError): void {
    for (const expected of this.#expected.values()) if (expected.session === session) expected.reject(reason);
  }
}

/** How a borrow ends, in words for the borrower. */
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
    throw new RpcError({
      code: "failed_precondition",
      message: "borrow: the region belongs to this engine",
      origin: "local",
    });
  }
  if (handle.leaseMs > 0) return;
  throw new RpcError({
    code: "deadline_exceeded",
    message: "borrow: the lease of the handle has ended",
    origin: "local",
  });
}
