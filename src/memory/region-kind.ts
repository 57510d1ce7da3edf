import type { RpcError } from "../base/errors/rpc-error.ts";
import { isBranded } from "../base/options/options.ts";

/**
 * What a peer may do with a region: "read" allows get, "write" allows put, "read_write" both. The owner may always read
 * and write its own memory.
 */
export type Access = "read" | "write" | "read_write";

const accesses: readonly Access[] = ["read", "write", "read_write"];

/**
 * The lifetime of the keys by which peers reach a region. "call": each call registers the memory under its own keys,
 * which end with it. "region": the memory is registered once for each peer, and the keys end with the region.
 */
export type RegionKeys = "call" | "region";

/**
 * Called when a call is granted a region, with the address of the peer, as `call.peer` has it. The function that it
 * returns is called when the call has ended, with the call's error.
 */
export type OnGranted = (peer: string) => ((error: RpcError | undefined) => void) | undefined;

/** The wire number of an access: 1 read, 2 write, 3 both. */
export function accessNumber(access: Access): number {
  return accesses.indexOf(access) + 1;
}

/** The access of a valid wire number. */
export function accessOf(number: number): Access {
  return accesses[number - 1] as Access;
}

/**
 * The accesses that include `A`: "read_write" includes "read" and "write".
 *
 * A mapped type is necessary. TypeScript compares two instances of a generic type by their arguments alone, and
 * "read_write" is not a subtype of "read". With a mapped type over `A` it compares the members. A class with a
 * `Granting<A>` as `access` is then assignable exactly where its access suffices.
 */
export type Granting<A extends Access> = A extends Access
  ? { readonly [K in A]: true } extends { readonly read_write: true }
    ? "read_write"
    : A | "read_write"
  : never;

/** Marks a region. Global, so that copies of the package recognise each other's. */
export const regionBrand: unique symbol = Symbol.for("cinnabar.Region");

/** Marks a remote region. Global, so that copies of the package recognise each other's. */
export const remoteRegionBrand: unique symbol = Symbol.for("cinnabar.RemoteRegion");

/** Marks a region handle. Global, so that copies of the package recognise each other's. */
export const regionHandleBrand: unique symbol = Symbol.for("cinnabar.RegionHandle");

/** A region handle that grants at least `A`: the value of a contract's `handle(A)`. */
export interface RegionHandleLike<A extends Access = Access> {
  readonly [regionHandleBrand]: true;
  /** What a borrower may do. */
  readonly access: Granting<A>;
  readonly byteLength: number;
}

/** Whether a value is a region handle. */
export function isRegionHandleLike(value: unknown): value is RegionHandleLike {
  return isBranded(value, regionHandleBrand);
}

/** A region that is exposed at least as `A`: a client's value for a contract's `bulk(A)`. */
export interface RegionLike<A extends Access = Access> {
  readonly [regionBrand]: true;
  /** What a peer may do with it. */
  readonly access: Granting<A>;
  /** Length in bytes, over all segments. */
  readonly byteLength: number;
}

/** A remote region that grants at least `A`: a handler's value for a contract's `bulk(A)`. */
export interface RemoteRegionLike<A extends Access = Access> {
  readonly [remoteRegionBrand]: true;
  /** The access that its owner granted. */
  readonly access: Granting<A>;
  /** Length in bytes, over all segments. */
  readonly byteLength: number;
  /** A part of it: `length` bytes from `offset`; by default to the end. Throws `out_of_range` outside its bounds. */
  slice(offset: number, length?: number): RemoteRegionLike<A>;
}

/** Whether a region exposed as `granted` allows `needed`. */
export function permits(granted: Access, needed: Access): boolean {
  return granted === needed || granted === "read_write";
}

/** Whether a value is a region. */
export function isRegionLike(value: unknown): value is RegionLike {
  return isBranded(value, regionBrand);
}

/** Whether a value is a remote region. */
export function isRemoteRegionLike(value: unknown): value is RemoteRegionLike {
  return isBranded(value, remoteRegionBrand);
}
