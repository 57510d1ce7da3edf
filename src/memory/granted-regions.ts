import { RpcError } from "../base/errors/rpc-error.ts";
import type { Port } from "../fabric/port.ts";
import { lostBytes } from "./exposable.ts";
import { PutNotificationTargets } from "./put-notification.ts";
import { coreOf, type Region } from "./region.ts";
import type { RegionCore } from "./region-core.ts";
import { type Access, permits } from "./region-kind.ts";
import { issuerFor, type KeyIssuer, LastingRegistrations } from "./region-registration.ts";

/** A region that this session's peer may use now. */
export interface GrantedRegion {
  /** Exactly the granted region: offsets count from its first byte. */
  readonly region: RegionCore;
  /** The rights of the peer. */
  readonly access: Access;
}

/**
 * The regions that one session has granted to its peer, by the key of each grant's first segment. A key that is not
 * here was never granted, or its grant has ended.
 */
export class GrantedRegions {
  /** Makes the keys for the peer. */
  readonly keys: KeyIssuer;
  /** Registrations that outlive calls. */
  readonly lasting: LastingRegistrations;
  readonly #grants = new Map<bigint, CountedGrants>();
  /** Only where puts carry notifications: each grant then needs a second entry. */
  readonly #targets: PutNotificationTargets | undefined;

  constructor(port: Port, address: number) {
    this.keys = issuerFor(port, address);
    this.lasting = new LastingRegistrations(this.keys);
    this.#targets = port.immediateBytes > 0 ? PutNotificationTargets.of(port) : undefined;
  }

  /** The grant of this key; undefined when the peer has none. */
  find(key: bigint): GrantedRegion | undefined {
    return this.#grants.get(key);
  }

  /**
   * The region of a grant, checked for the access and the range that the peer wants to use. The owner makes this check
   * before it touches its memory for a peer.
   *
   * @throws RpcError `not_found`, `permission_denied`, `out_of_range` or `data_loss`, as the answer for the peer.
   */
  check(key: bigint, needed: Access | undefined, offset: number, bytes: number): RegionCore {
    const granted = this.#grants.get(key);
    if (granted === undefined)
      throw refused("not_found", "the peer has no grant of this region, or it has ended");
    const { region, access } = granted;
    if (needed !== undefined && !permits(access, needed))
      throw refused(
        "permission_denied",
        `the region was exposed as "${access}"; the operation needs "${needed}"`,
      );
    if (offset + bytes > region.byteLength) {
      throw refused(
        "out_of_range",
        `offset ${offset} and length ${bytes} do not lie inside the ${region.byteLength} bytes that were granted`,
      );
    }
    if (region.isDamaged) throw lostBytes("the owner's memory", "remote");
    return region;
  }

  /**
   * A call was granted the region under this key. Other calls may hold the key, too. `isReachable`: the peer writes the
   * memory one-sided, and its writes may carry notifications.
   */
  add(key: bigint, region: Region, isReachable = true): void {
    const known = this.#grants.get(key);
    if (known !== undefined) {
      known.calls++;
      return;
    }
    const core = coreOf(region);
    const granted = { region: core, access: core.access, calls: 1 };
    this.#grants.set(key, granted);
    if (isReachable) this.#targets?.add(key, granted);
  }

  /** One of the calls has ended. */
  delete(key: bigint): void {
    const granted = this.#grants.get(key);
    if (granted === undefined || --granted.calls > 0) return;
    this.#grants.delete(key);
    this.#targets?.delete(key, granted);
  }
}

/** The grants of one key. */
interface CountedGrants extends GrantedRegion {
  /** How many calls hold it now. */
  calls: number;
}

function refused(code: "not_found" | "permission_denied" | "out_of_range", message: string): RpcError {
  return new RpcError({ code, message, origin: "remote" });
}
