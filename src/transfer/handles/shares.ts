import { randomBytes } from "node:crypto";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { shown } from "../../base/options/options.ts";
import { systemClock } from "../../base/time/clock.ts";
import { coreOf, type Region, type RegionSharing } from "../../memory/region.ts";
import { RegionHandle, type ShareOptions } from "../../memory/region-handle.ts";
import { type Access, accessNumber } from "../../memory/region-kind.ts";
import { handleTokenBytes } from "../../wire/handle-descriptor.ts";

const defaultLeaseMs = 60_000;
const maxLeaseMs = 2_147_483_647;
/** Valid handles of one engine. */
const maxShares = 4096;

/** What a handle stands for at its owner. */
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
   * @throws RangeError for `leaseMs` out of bounds; RpcError `failed_precondition` when the engine does not listen,
   * `resource_exhausted` beyond 4096 handles.
   */
  share(region: Region, { leaseMs = defaultLeaseMs }: ShareOptions): RegionHandle {
    if (!(typeof leaseMs === "number" && leaseMs > 0 && leaseMs <= maxLeaseMs))
      throw new RangeError(
        `share: leaseMs must be a number above 0, at most ${maxLeaseMs}, it is ${shown(leaseMs)}`,
      );
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
  return new RpcError({ code, message, origin: "local" });
}
