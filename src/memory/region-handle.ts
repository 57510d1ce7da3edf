import { systemClock } from "../base/time/clock.ts";
import { isWildcard } from "../fabric/host.ts";
import { formatHostUrl, hasHosts, parseUrl } from "../fabric/libfabric/url.ts";
import { DecodeError, type PeerIdentity } from "../wire/extension.ts";
import {
  type HandleDescriptor,
  handleTokenBytes,
  readHandleDescriptor,
  registerHandleClass,
  writeHandleDescriptor,
} from "../wire/handle-descriptor.ts";
import { type Access, accessNumber, accessOf, type Granting, regionHandleBrand } from "./region-kind.ts";

/** Options of `region.share`. */
export interface ShareOptions {
  /**
   * How long the handle is valid, in milliseconds, at most 2^31 - 1. It cannot be renewed: share again. Default 60,000.
   */
  readonly leaseMs?: number | undefined;
}

let readToken: (handle: RegionHandle) => Uint8Array;

/**
 * A handle of a shared region: plain data that travels in any input or output, may be passed on, and outlives calls.
 * Made by `region.share()`. Its holder may `engine.borrow` the region from its owner until the lease ends or the region
 * is disposed.
 */
export class RegionHandle<A extends Access = Access> {
  readonly [regionHandleBrand] = true as const;
  /** What a borrower may do. */
  readonly access: Granting<A>;
  /** Length of the region in bytes. */
  readonly byteLength: number;
  /** Addresses of the owner. */
  readonly urls: readonly string[];
  /** The owner's incarnation. After a restart the owner does not know the handle. */
  readonly incarnation: bigint;
  readonly #token: Uint8Array;
  readonly #endsMs: number;

  static {
    readToken = (handle) => handle.#token;
  }

  /** @internal Made by `region.share`, or decoded from a message. */
  constructor({ urls, incarnation, token, bytes, access, leaseMs }: HandleDescriptor) {
    this.access = accessOf(access) as Granting<A>;
    this.byteLength = bytes;
    this.urls = urls;
    this.incarnation = incarnation;
    this.#token = token;
    this.#endsMs = systemClock.now() + leaseMs;
  }

  /**
   * Remaining time of the lease in milliseconds; 0 when it has ended. The time that the handle spent on the wire is not
   * counted.
   */
  get leaseMs(): number {
    return Math.max(0, this.#endsMs - systemClock.now());
  }
}

/** The secret that opens a handle's region at its owner. */
export function tokenOf(handle: RegionHandle): Uint8Array {
  return readToken(handle);
}

registerHandleClass(
  RegionHandle,
  (handle) => {
    const { urls, incarnation, byteLength, access, leaseMs } = handle;
    return writeHandleDescriptor({
      urls,
      incarnation,
      token: readToken(handle).subarray(0, handleTokenBytes),
      bytes: byteLength,
      access: accessNumber(access as Access),
      leaseMs,
    });
  },
  (bytes, peer) => {
    const handle = readHandleDescriptor(bytes);
    if (typeof handle === "string") throw new DecodeError(handle);
    return new RegionHandle({ ...handle, urls: handle.urls.map((url) => completed(url, handle, peer)) });
  },
);

/**
 * An engine that listens on all interfaces has a URL without an address. When the handle comes from its owner, the
 * address by which the owner was reached completes the URL.
 */
function completed(url: string, { incarnation }: HandleDescriptor, peer: PeerIdentity | undefined): string {
  if (peer === undefined || peer.host === "" || peer.incarnation !== incarnation) return url;
  try {
    const { scheme, host, port } = parseUrl(url);
    return hasHosts(scheme) && isWildcard(host) ? formatHostUrl(scheme, peer.host, port) : url;
  } catch {
    // This version does not know the scheme, and never connects to it.
    return url;
  }
}
