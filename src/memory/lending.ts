import { RpcError } from "../errors/rpc-error.ts";
import type { Session } from "../session/session.ts";
import type { ServedMethod } from "../session/session-host.ts";
import { builtin } from "../wire/builtin.ts";
import { handleTokenBytes } from "../wire/handle-descriptor.ts";
import { builtinMethod, fail, isUint64 } from "./builtin-method.ts";
import type { Shares } from "./shares.ts";

/** Regions that one session's peer may have borrowed at once: each keeps a built-in request open for as long as it is borrowed. */
const maxLends = 256;

/** The borrower ends the lease by its own clock, so that it knows why; this side insists only after that much more. */
const graceMs = 500;

interface BorrowInput {
  readonly token: Uint8Array;
  readonly incarnation: bigint;
  readonly ticket: bigint;
}

/**
 * Serves `borrow`: lends the region in a call of this side's own, which is open until the borrower is done, the lease is over, or the region is disposed.
 * So a borrowed region is lent like any other.
 */
export function borrowMethod(shares: Shares, incarnation: bigint): ServedMethod {
  const lent = new WeakMap<Session, number>();
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
      if (life !== incarnation)
        return fail(call, "not_found", "the handle is of another life of this engine");
      const { region, endsMs } = shares.find(token);
      const count = lent.get(session) ?? 0;
      if (count >= maxLends)
        return fail(call, "resource_exhausted", `${maxLends} regions are borrowed already`);
      lent.set(session, count + 1);
      const over = new AbortController();
      const forget = region.onDisposed(() => over.abort(takenBack));
      const timeoutMs = Math.max(1, endsMs - performance.now());
      const lending = session.ask(builtin.lend, [ticket, region], {
        timeoutMs,
        graceMs,
        signal: over.signal,
      });
      lending
        .finally(() => {
          forget();
          lent.set(session, (lent.get(session) ?? 1) - 1);
        })
        .catch(() => {});
      // How it ends later is the borrower's business. What has failed already never left.
      await Promise.race([lending, Promise.resolve()]);
      call.settle({ value: undefined });
    },
  );
}

const takenBack = new RpcError({ code: "aborted", message: "the region has been disposed", origin: "local" });
