import { RpcError } from "../../base/errors/rpc-error.ts";
import { systemClock } from "../../base/time/clock.ts";
import { coreOf } from "../../memory/region.ts";
import { builtin } from "../../wire/builtin.ts";
import { handleTokenBytes } from "../../wire/handle-descriptor.ts";
import type { ServedMethod } from "../control/control-method.ts";
import { builtinMethod, fail, isUint64 } from "../control/control-method.ts";
import type { PeerLink } from "../control/peer-link.ts";
import type { Shares } from "./shares.ts";

/** Regions that the peer of one session may borrow at once. Each keeps a control request open. */
const maxBorrowed = 256;

/** The name under which `security.allow` is asked whether a peer may borrow. */
export const borrowPath = "cinnabar/borrow";

/**
 * The borrower ends the lease by its own clock, so that it knows why. This side waits that much longer, in
 * milliseconds.
 */
const graceMs = 500;

interface BorrowInput {
  readonly token: Uint8Array;
  readonly incarnation: bigint;
  readonly ticket: bigint;
}

/**
 * Serves `borrow`: grants the region in a control request of its own, which stays open until the borrower is done, the
 * lease ends, or the region is disposed. So a borrowed region is granted like any other.
 */
export function borrowMethod(shares: Shares, incarnation: bigint): ServedMethod {
  const borrowed = new WeakMap<PeerLink, number>();
  return builtinMethod<BorrowInput>(
    "borrow",
    ([token, life, ticket]) => {
      const fits =
        token instanceof Uint8Array &&
        token.byteLength === handleTokenBytes &&
        isUint64(life) &&
        isUint64(ticket);
      return fits ? { token, incarnation: life, ticket } : undefined;
    },
    async ({ token, incarnation: life, ticket }, call, session) => {
      // A handle is known to whoever has seen it: `allow` says who may use one.
      const refused = session.refusalOf(borrowPath);
      if (refused !== undefined) return void call.settle({ error: refused });
      if (life !== incarnation)
        return fail(call, "not_found", "the handle comes from an earlier run of this engine");
      const { region, endsMs } = shares.find(token);
      const count = borrowed.get(session) ?? 0;
      if (count >= maxBorrowed)
        return fail(
          call,
          "resource_exhausted",
          `the peer has borrowed ${maxBorrowed} regions; that is the limit`,
        );
      borrowed.set(session, count + 1);
      const over = new AbortController();
      const forget = coreOf(region).onDisposed(() => over.abort(takenBack));
      const timeoutMs = Math.max(1, endsMs - systemClock.now());
      const granting = session.request(builtin.grant, [ticket, region], {
        timeoutMs,
        graceMs,
        signal: over.signal,
      });
      granting
        .finally(() => {
          forget();
          borrowed.set(session, (borrowed.get(session) ?? 1) - 1);
        })
        .catch(() => {});
      // How it ends later concerns the borrower only. If it failed already, it never left.
      await Promise.race([granting, Promise.resolve()]);
      call.settle({ value: undefined });
    },
  );
}

const takenBack = new RpcError({ code: "aborted", message: "the region has been disposed", origin: "local" });
