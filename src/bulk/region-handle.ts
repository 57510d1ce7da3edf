import { isWildcard } from "../fabric/host.ts";
import { formatHostUrl, hasHosts, parseUrl } from "../fabric/url.ts";
import { type Carrier, DecodeError, registerHandleClass } from "../wire/codec.ts";
import {
  type HandleDescriptor,
  handleTokenBytes,
  readHandleDescriptor,
  writeHandleDescriptor,
} from "../wire/handle-descriptor.ts";
import type { Region } from "./region.ts";
import { type Access, accessNumber, accessOf, type Granting, regionHandleBrand } from "./region-kind.ts";

/** How `region.share` makes a handle. */
export interface ShareOptions {
  /** How long the handle is good, in milliseconds, whoever holds it. There is no renewal: share again. Default 60,000. */
  readonly leaseMs?: number;
}

/** Who keeps an engine's shares. */
export interface RegionSharing {
  share(region: Region, options: ShareOptions): RegionHandle;
}

/**
 * A right to borrow a region, as plain data: it travels in any input or output, may be passed on, and outlives calls. Whoever has it may
 * `engine.borrow` the region from its owner until the lease is over, or the region is disposed.
 */
export class RegionHandle<A extends Access = Access> {
  readonly [regionHandleBrand] = true as const;
  /** What a borrower may do. */
  readonly access: Granting<A>;
  readonly byteLength: number;
  /** Where the owner can be reached. */
  readonly urls: readonly string[];
  /** The owner's life; another one knows nothing of the handle. */
  readonly incarnation: bigint;
  readonly #token: Uint8Array;
  readonly #endsMs: number;

  /** @internal Made by `region.share`, or out of a message. */
  constructor({ urls, incarnation, token, bytes, access, leaseMs }: HandleDescriptor) {
    this.access = accessOf(access) as Granting<A>;
    this.byteLength = bytes;
    this.urls = urls;
    this.incarnation = incarnation;
    this.#token = token;
    this.#endsMs = performance.now() + leaseMs;
  }

  /** How much is left of the lease, in milliseconds; 0 when it is over. As far as it is known here: the time on its way is not counted. */
  get leaseMs(): number {
    return Math.max(0, this.#endsMs - performance.now());
  }

  /** @internal The secret that opens the region. */
  get token(): Uint8Array {
    return this.#token;
  }
}

registerHandleClass(
  RegionHandle,
  ({ urls, incarnation, token, byteLength, access, leaseMs }) =>
    writeHandleDescriptor({
      urls,
      incarnation,
      token: token.subarray(0, handleTokenBytes),
      bytes: byteLength,
      access: accessNumber(access as Access),
      leaseMs,
    }),
  (bytes, carrier) => {
    const handle = readHandleDescriptor(bytes);
    if (typeof handle === "string") throw new DecodeError(handle);
    return new RegionHandle({ ...handle, urls: handle.urls.map((url) => completed(url, handle, carrier)) });
  },
);

/**
 * A URL at which an engine listens on every interface names no address to connect to. Where the handle comes from its owner itself, the address that the
 * owner was reached at, or came from, is one.
 */
function completed(url: string, { incarnation }: HandleDescriptor, carrier: Carrier | undefined): string {
  if (carrier === undefined || carrier.host === "" || carrier.incarnation !== incarnation) return url;
  try {
    const { scheme, host, port } = parseUrl(url);
    return hasHosts(scheme) && isWildcard(host) ? formatHostUrl(scheme, carrier.host, port) : url;
  } catch {
    // Of a scheme that this version does not know: nobody will connect to it.
    return url;
  }
}
