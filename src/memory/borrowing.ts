import { randomBytes } from "node:crypto";
import { RegionHandle } from "../bulk/region-handle.ts";
import { RemoteRegion } from "../bulk/remote-region.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Session } from "../session/session.ts";
import type { ServedMethod } from "../session/session-host.ts";
import { builtin } from "../wire/builtin.ts";
import { BorrowedRegion } from "./borrowed-region.ts";
import { builtinMethod, fail, isUint64 } from "./builtin-method.ts";

/** What `engine.borrow` takes. */
export interface BorrowOptions {
  /** Gives up: the promise rejects at once. */
  readonly signal?: AbortSignal;
  /** How long reaching the owner and its answer may take, in milliseconds. Default: the engine's `connectTimeoutMs`. */
  readonly timeoutMs?: number;
}

/** A way to a region's owner, to be let go of when the region is given back. */
export interface OwnerLink {
  readonly session: Session;
  release(): void;
}

/** Somebody who waits for the region that a ticket will bring. */
interface Expected {
  readonly session: Session;
  readonly handle: RegionHandle;
  readonly onReturned: () => void;
  resolve(region: BorrowedRegion): void;
  reject(error: RpcError): void;
}

/** Regions that an engine borrows from others. */
export class Borrowing {
  readonly #expected = new Map<bigint, Expected>();

  /** Serves `lend`: the region of a ticket comes. The call stays open until it is given back. */
  readonly lendMethod: ServedMethod = builtinMethod<{
    readonly ticket: bigint;
    readonly region: RemoteRegion;
  }>(
    "lend",
    ([ticket, region]) =>
      isUint64(ticket) && region instanceof RemoteRegion ? { ticket, region } : undefined,
    ({ ticket, region }, call, session) => {
      const expected = this.#expected.get(ticket);
      if (expected === undefined || expected.session !== session)
        return fail(call, "not_found", "nobody waits for this region, or not any more");
      const { handle, onReturned } = expected;
      if (region.byteLength !== handle.byteLength || region.access !== handle.access) {
        expected.reject(
          new RpcError({
            code: "invalid_argument",
            message: "borrow: the handle does not speak of the region as its owner does",
            origin: "local",
          }),
        );
        return fail(call, "invalid_argument", "the region is not the one that the handle speaks of");
      }
      // A ticket brings one region.
      this.#expected.delete(ticket);
      call.wording = lease;
      expected.resolve(new BorrowedRegion(call, session, region, onReturned));
    },
  );

  /** Asks the owner behind `link` for the region. The link is released when the region has been given back, or when there is none. */
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
    const cancelTimer = session.host.clock.timer(timeoutMs, () =>
      this.#expected.get(ticket)?.reject(
        new RpcError({
          code: "deadline_exceeded",
          message: "borrow: the region did not come in time",
          origin: "local",
        }),
      ),
    );
    try {
      const input = [handle.token, handle.incarnation, ticket];
      await session.ask(builtin.borrow, input, { timeoutMs, signal });
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

  /** Nothing comes by it any more. */
  onSessionEnded(session: Session, reason: RpcError): void {
    for (const expected of this.#expected.values()) if (expected.session === session) expected.reject(reason);
  }
}

/** How a borrowed region ends, in words for its borrower. */
const lease = {
  cancelled: { code: "aborted", message: "the region's owner has taken it back" },
  outOfTime: { code: "deadline_exceeded", message: "the lease of the borrowed region is over" },
  ended: { code: "failed_precondition", message: "the borrowed region has been given back" },
} as const;

/** @throws TypeError for what is no handle; RpcError `failed_precondition` for one's own, `deadline_exceeded` when its lease is over. */
export function assertBorrowable(handle: unknown, incarnation: bigint): asserts handle is RegionHandle {
  if (!(handle instanceof RegionHandle))
    throw new TypeError("borrow: the first argument must be a handle on a region");
  if (handle.incarnation === incarnation) {
    throw new RpcError({
      code: "failed_precondition",
      message: "borrow: the region is this engine's own",
      origin: "local",
    });
  }
  if (handle.leaseMs > 0) return;
  throw new RpcError({
    code: "deadline_exceeded",
    message: "borrow: the handle's lease is over",
    origin: "local",
  });
}
