import { randomBytes } from "node:crypto";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { type FieldsOf, milliseconds, resolveOptions } from "../../base/options/options.ts";
import { systemClock } from "../../base/time/clock.ts";
import { coreOf, type Region, type RegionSharing } from "../../memory/region.ts";
import { RegionHandle, type ShareOptions } from "../../memory/region-handle.ts";
import { type Access, accessNumber } from "../../memory/region-kind.ts";
import { builtin } from "../../wire/builtin.ts";
import { handleTokenBytes } from "../../wire/handle-descriptor.ts";
import { builtinMethod, fail, isUint64, type ServedMethod } from "../control/control-method.ts";
import type { PeerLink } from "../control/peer-link.ts";

const shareFields = { leaseMs: milliseconds({ fallback: 60_000 }) } satisfies FieldsOf<ShareOptions>;
/** Valid handles of one engine. */
const maxShares = 4096;

/** The region behind a handle, at its owner. */
export interface Share {
  readonly region: Region;
  /** When the lease ends, on this process's monotonic clock. */
  readonly endsMs: number;
}

/** The handles that an engine has made, by token. A share ends with its region or its lease. */
export class Shares implements RegionSharing {
  readonly #urls: () => readonly string[];
  readonly #incarnation: bigint;
  readonly #shares = new Map<string, Share & { readonly forget: () => void }>();

  constructor(urls: () => readonly string[], incarnation: bigint) {
    this.#urls = urls;
    this.#incarnation = incarnation;
  }

  /**
   * @throws TypeError or RangeError for options that do not fit; RpcError `failed_precondition` when the engine does
   * not listen, `resource_exhausted` beyond 4096 handles.
   */
  share(region: Region, options: ShareOptions): RegionHandle {
    const { leaseMs } = resolveOptions("share", options, shareFields);
    const urls = this.#urls();
    if (urls.length === 0)
      throw refused(
        "failed_precondition",
        "share: the engine does not listen, so nobody could borrow from it",
      );
    if (this.#shares.size >= maxShares) this.#dropExpired();
    if (this.#shares.size >= maxShares)
      throw refused(
        "resource_exhausted",
        `share: the engine has ${maxShares} valid handles; that is the limit`,
      );
    const token = randomBytes(handleTokenBytes);
    const name = token.toString("hex");
    const forget = coreOf(region).onDisposed(() => this.#shares.delete(name));
    this.#shares.set(name, { region, endsMs: systemClock.now() + leaseMs, forget });
    return new RegionHandle({
      urls,
      incarnation: this.#incarnation,
      token,
      bytes: region.byteLength,
      access: accessNumber(region.access as Access),
      leaseMs,
    });
  }

  /** @throws RpcError `not_found`, or `deadline_exceeded` when the lease has ended. */
  find(token: Uint8Array): Share {
    const share = this.#shares.get(Buffer.from(token).toString("hex"));
    if (share === undefined)
      throw refused("not_found", "the handle is unknown, or its region has been disposed");
    if (share.endsMs <= systemClock.now())
      throw refused("deadline_exceeded", "the lease of the handle has ended");
    return share;
  }

  clear(): void {
    for (const { forget } of this.#shares.values()) forget();
    this.#shares.clear();
  }

  #dropExpired(): void {
    const now = systemClock.now();
    for (const [token, { endsMs, forget }] of this.#shares) {
      if (endsMs > now) continue;
      forget();
      this.#shares.delete(token);
    }
  }
}

function refused(
  code: "failed_precondition" | "resource_exhausted" | "not_found" | "deadline_exceeded",
  message: string,
): RpcError {
  return new RpcError({ code, message });
}

/** Regions that the peer of one session may borrow at once. Each keeps a control request open. */
const maxBorrowed = 256;

/** The name that `security.allow` gets for a request to borrow. */
const borrowPath = "cinnabar/borrow";

/**
 * The borrower ends the lease by its own clock, so that it knows the reason. This side waits that much longer, in
 * milliseconds.
 */
const graceMs = 500;

interface BorrowInput {
  readonly token: Uint8Array;
  readonly incarnation: bigint;
  readonly ticket: bigint;
}

/**
 * Serves `borrow`: grants the region in a separate control request. It stays open until the borrower is done, the lease
 * ends, or the region is disposed. A borrowed region is therefore granted like any other.
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
    async ({ token, incarnation: life, ticket }, call, peer) => {
      // Any peer that has seen a handle knows it, so `allow` decides who may use it.
      const refused = peer.refusalOf(borrowPath);
      if (refused !== undefined) return void call.settle({ error: refused });
      if (life !== incarnation)
        return fail(call, "not_found", "the handle comes from an earlier run of this engine");
      const { region, endsMs } = shares.find(token);
      const count = borrowed.get(peer) ?? 0;
      if (count >= maxBorrowed)
        return fail(
          call,
          "resource_exhausted",
          `the peer has borrowed ${maxBorrowed} regions; that is the limit`,
        );
      borrowed.set(peer, count + 1);
      const over = new AbortController();
      const forget = coreOf(region).onDisposed(() => over.abort(takenBack));
      const timeoutMs = Math.max(1, endsMs - systemClock.now());
      const granting = peer.request(builtin.grant, [ticket, region], {
        timeoutMs,
        graceMs,
        signal: over.signal,
      });
      granting
        .finally(() => {
          forget();
          borrowed.set(peer, (borrowed.get(peer) ?? 1) - 1);
        })
        .catch(() => {});
      // A later end of the request concerns only the borrower. A request that has already failed never left.
      await Promise.race([granting, Promise.resolve()]);
      call.settle({ value: undefined });
    },
  );
}

const takenBack = new RpcError({ code: "aborted", message: "the region has been disposed" });
