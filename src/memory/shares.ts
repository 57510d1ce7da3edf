import { randomBytes } from "node:crypto";
import type { Region } from "../bulk/region.ts";
import { RegionHandle, type RegionSharing, type ShareOptions } from "../bulk/region-handle.ts";
import { type Access, accessNumber } from "../bulk/region-kind.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { handleTokenBytes } from "../wire/handle-descriptor.ts";

const defaultLeaseMs = 60_000;
const maxLeaseMs = 2_147_483_647;
/** Handles of one engine that can be good at once. */
const maxShares = 4096;

/** What a handle stands for at its owner. */
export interface Share {
  readonly region: Region;
  /** When the lease is over, on this process's monotonic clock. */
  readonly endsMs: number;
}

/** The handles that an engine has given out, by token. A share goes with its region, or with its lease. */
export class Shares implements RegionSharing {
  readonly #urls: () => readonly string[];
  readonly #incarnation: bigint;
  readonly #shares = new Map<string, Share & { readonly forget: () => void }>();

  constructor(urls: () => readonly string[], incarnation: bigint) {
    this.#urls = urls;
    this.#incarnation = incarnation;
  }

  /** @throws TypeError, RangeError for bad options; RpcError `failed_precondition` for a region or an engine that cannot share, `resource_exhausted`. */
  share(region: Region, { leaseMs = defaultLeaseMs }: ShareOptions): RegionHandle {
    if (!(typeof leaseMs === "number" && leaseMs > 0 && leaseMs <= maxLeaseMs))
      throw new RangeError(
        `share: leaseMs must be a number above 0, at most ${maxLeaseMs}; it is ${String(leaseMs)}`,
      );
    const urls = this.#urls();
    if (urls.length === 0)
      throw refused("failed_precondition", "share: the engine listens nowhere, nobody could borrow from it");
    if (this.#shares.size >= maxShares) this.#dropExpired();
    if (this.#shares.size >= maxShares)
      throw refused("resource_exhausted", `share: ${maxShares} handles are good already`);
    const token = randomBytes(handleTokenBytes);
    const name = token.toString("hex");
    const forget = region.onDisposed(() => this.#shares.delete(name));
    this.#shares.set(name, { region, endsMs: performance.now() + leaseMs, forget });
    return new RegionHandle({
      urls,
      incarnation: this.#incarnation,
      token,
      bytes: region.byteLength,
      access: accessNumber(region.access as Access),
      leaseMs,
    });
  }

  /** @throws RpcError `not_found`, `deadline_exceeded` when the lease is over. */
  find(token: Uint8Array): Share {
    const share = this.#shares.get(Buffer.from(token).toString("hex"));
    if (share === undefined)
      throw refused("not_found", "there is no such handle, or its region has been disposed");
    if (share.endsMs <= performance.now()) throw refused("deadline_exceeded", "the handle's lease is over");
    return share;
  }

  clear(): void {
    for (const { forget } of this.#shares.values()) forget();
    this.#shares.clear();
  }

  #dropExpired(): void {
    const now = performance.now();
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
  return new RpcError({ code, message, origin: "local" });
}
