/**
 * What the remote peer may do with a region: `read` lets it get, `write` lets it put, `read_write` both. Always the
 * remote side's right; the owner may do what it likes with its own memory.
 */
export type Access = "read" | "write" | "read_write";

const accesses: readonly Access[] = ["read", "write", "read_write"];

/** The number of an access, as it travels: 1, 2, or 3 for both. */
export function accessNumber(access: Access): number {
  return accesses.indexOf(access) + 1;
}

/** The access of a number that has been checked. */
export function accessOf(number: number): Access {
  return accesses[number - 1] as Access;
}

/**
 * The accesses of which each is enough for `A`: a region exposed "read_write" serves where "read" or "write" is asked.
 *
 * Said by way of a mapped type on purpose. TypeScript compares two instances of one generic type by their arguments alone,
 * and "read_write" is no subtype of "read"; a mapped type over `A` makes it look at the members instead. So a class whose
 * `access` is a `Granting<A>` is assignable exactly where its right suffices.
 */
export type Granting<A extends Access> = A extends Access
  ? { readonly [K in A]: true } extends { readonly read_write: true }
    ? "read_write"
    : A | "read_write"
  : never;

/** Marks a local region; global, so that duplicate copies of the package know each other's. */
export const regionBrand: unique symbol = Symbol.for("cinnabar.Region");

/** Marks a handle on a peer's region; global, so that duplicate copies of the package know each other's. */
export const remoteRegionBrand: unique symbol = Symbol.for("cinnabar.RemoteRegion");

/** Marks a handle on a shared region; global, so that duplicate copies of the package know each other's. */
export const regionHandleBrand: unique symbol = Symbol.for("cinnabar.RegionHandle");

/** A handle on a region that grants at least `A`: what travels where the contract says `handle(A)`. */
export interface RegionHandleLike<A extends Access = Access> {
  readonly [regionHandleBrand]: true;
  /** What a borrower may do. */
  readonly access: Granting<A>;
  readonly byteLength: number;
}

/** Whether a value is a handle on a shared region. */
export function isRegionHandleLike(value: unknown): value is RegionHandleLike {
  return (
    typeof value === "object" &&
    value !== null &&
    (value as { [regionHandleBrand]?: unknown })[regionHandleBrand] === true
  );
}

/** A local region that is exposed at least for `A`: what a client passes where the contract says `bulk(A)`. */
export interface RegionLike<A extends Access = Access> {
  readonly [regionBrand]: true;
  /** What it was exposed for. */
  readonly access: Granting<A>;
  /** Its length over all its segments, in bytes. */
  readonly byteLength: number;
}

/** A handle on a peer's region that grants at least `A`: what a handler gets where the contract says `bulk(A)`. */
export interface RemoteRegionLike<A extends Access = Access> {
  readonly [remoteRegionBrand]: true;
  /** What its owner exposed it for. */
  readonly access: Granting<A>;
  /** Its length over all its segments, in bytes. */
  readonly byteLength: number;
  /** A part of it, `length` bytes from `offset`; by default all to the end. Throws `out_of_range` outside its bounds. */
  slice(offset: number, length?: number): RemoteRegionLike<A>;
}

/** Whether a region exposed for `granted` serves where `needed` is asked. */
export function grants(granted: Access, needed: Access): boolean {
  return granted === needed || granted === "read_write";
}

/** Whether a value is a local region. */
export function isRegionLike(value: unknown): value is RegionLike {
  return (
    typeof value === "object" &&
    value !== null &&
    (value as { [regionBrand]?: unknown })[regionBrand] === true
  );
}

/** Whether a value is a handle on a peer's region. */
export function isRemoteRegionLike(value: unknown): value is RemoteRegionLike {
  return (
    typeof value === "object" &&
    value !== null &&
    (value as { [remoteRegionBrand]?: unknown })[remoteRegionBrand] === true
  );
}
