import { isSharedArrayBuffer } from "node:util/types";
import { markAsUntransferable } from "node:worker_threads";
import type { Loan } from "../call/outgoing-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { type Port, type RegisteredMemory, access as right } from "../fabric/port.ts";
import { registerRegionClass } from "../wire/codec.ts";
import type { RegionDescriptor } from "../wire/region-descriptor.ts";
import { type Access, type Granting, regionBrand } from "./region-kind.ts";

const rights = {
  read: right.remoteRead,
  write: right.remoteWrite,
  read_write: right.remoteRead | right.remoteWrite,
} as const;

const nothing = { key: 0n, base: 0n } as const;

/** Who keeps count of an engine's regions. */
export interface RegionOwner {
  onRegionReleased(region: Region): void;
}

/**
 * Local memory that calls may lend to their peers: `engine.expose(view, { access })` makes one, a call's input carries it, the handler at
 * the other side reads or writes it in place. The right ends with the call.
 *
 * The memory stays the caller's: it may be read and written at any time, and must not be detached (transferred) while exposed.
 * `dispose` refuses new use at once and lets go of the memory when the last call that borrowed it has ended; until then the region keeps it
 * alive. Slices share the memory, not the rights: a peer that is handed a slice can reach the slice only.
 */
export class Region<A extends Access = Access> implements Disposable {
  readonly [regionBrand] = true as const;
  readonly access: Granting<A>;
  readonly byteLength: number;
  readonly #owner: RegionOwner;
  readonly #memory: ArrayBufferLike;
  readonly #byteOffset: number;
  readonly #parent: Region<A> | undefined;
  readonly #slices = new Set<Region<A>>();
  readonly #registrations = new Map<Port, RegisteredMemory>();
  #loans = 0;
  #disposed = false;

  /** @internal Regions are made by `engine.expose` and `slice`. */
  constructor(owner: RegionOwner, view: ArrayBufferView, access: A, parent?: Region<A>) {
    this.#owner = owner;
    this.#memory = view.buffer;
    this.#byteOffset = view.byteOffset;
    this.#parent = parent;
    this.byteLength = view.byteLength;
    this.access = access as unknown as Granting<A>;
    if (!isSharedArrayBuffer(view.buffer)) markAsUntransferable(view.buffer);
  }

  /** The exposed memory, as bytes. */
  get bytes(): Uint8Array {
    return new Uint8Array(this.#memory, this.#byteOffset, this.byteLength);
  }

  /** True for a slice, too, once the region it was cut from has been disposed. */
  get disposed(): boolean {
    return this.#disposed || (this.#parent?.disposed ?? false);
  }

  /** How many calls hold it now. */
  get loans(): number {
    return this.#loans;
  }

  /**
   * A part of the region, lent by itself. It ends with the region, or by its own `dispose`; forgotten slices cost nothing once no call holds them.
   *
   * @throws RpcError `out_of_range` when the part does not lie inside.
   */
  slice(offset: number, length: number = this.byteLength - offset): Region<A> {
    this.#assertUsable();
    assertInside("slice", offset, length, this.byteLength);
    const view = new Uint8Array(this.#memory, this.#byteOffset + offset, length);
    return new Region(this.#owner, view, this.access as unknown as A, this);
  }

  /** Refuses new use now; lets go of the memory when the last call that holds it has ended. Safe to call twice. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    for (const slice of this.#slices) slice.dispose();
    if (this.#loans === 0) this.#deregister();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** @internal Lends the region to the peer behind `port` for one call. */
  lend(port: Port): { readonly descriptor: RegionDescriptor; readonly loan: Loan } {
    this.#assertUsable();
    // Nothing to touch, nothing to register: providers refuse empty regions.
    const registered = this.byteLength === 0 ? nothing : this.#registrationOn(port);
    this.#loans++;
    const release = () => {
      // A slice that nobody holds is registered no longer; whole regions stay, so that using one again costs nothing.
      if (--this.#loans === 0 && (this.#disposed || this.#parent !== undefined)) this.#deregister();
    };
    return {
      descriptor: {
        key: registered.key,
        address: registered.base,
        bytes: this.byteLength,
        access: rights[this.access as Access],
      },
      loan: { bytes: this.byteLength, release },
    };
  }

  #registrationOn(port: Port): RegisteredMemory {
    let registered = this.#registrations.get(port);
    if (registered === undefined) {
      registered = port.register(
        this.#memory,
        this.#byteOffset,
        this.byteLength,
        rights[this.access as Access],
      );
      this.#registrations.set(port, registered);
      if (this.#parent !== undefined) this.#parent.#slices.add(this);
    }
    return registered;
  }

  #deregister(): void {
    for (const [port, registered] of this.#registrations) port.deregister(registered.index);
    this.#registrations.clear();
    if (this.#parent !== undefined) this.#parent.#slices.delete(this);
    if (this.#disposed && this.#parent === undefined) this.#owner.onRegionReleased(this as unknown as Region);
  }

  #assertUsable(): void {
    if (this.disposed) {
      throw new RpcError({
        code: "failed_precondition",
        message: "the region has been disposed",
        origin: "local",
      });
    }
    if (isDetached(this.#memory)) throw detached("the region's memory");
  }
}

/** Whether the buffer's memory has been transferred away. A detached one has 0 bytes like an empty one, but takes no view. */
export function isDetached(memory: ArrayBufferLike): boolean {
  if (memory.byteLength > 0) return false;
  try {
    new Uint8Array(memory);
    return false;
  } catch {
    return true;
  }
}

/** The error for memory that is not there any more. */
export function detached(what: string): RpcError {
  return new RpcError({
    code: "failed_precondition",
    message: `${what} has been detached: its ArrayBuffer was transferred`,
    origin: "local",
  });
}

registerRegionClass(Region);

/** @throws RpcError `out_of_range` naming what was asked and what there is. */
export function assertInside(what: string, offset: number, length: number, byteLength: number): void {
  const whole = Number.isSafeInteger(offset) && Number.isSafeInteger(length) && offset >= 0 && length >= 0;
  if (whole && offset + length <= byteLength) return;
  throw new RpcError({
    code: "out_of_range",
    message: `${what}: offset ${offset} and length ${length} do not lie inside ${byteLength} bytes`,
    origin: "local",
  });
}

const accesses: readonly string[] = ["read", "write", "read_write"] satisfies Access[];

/** What `expose` takes, checked. @throws TypeError naming the field; RpcError `failed_precondition` for detached memory. */
export function assertExposable(view: unknown, access: unknown): asserts view is ArrayBufferView {
  if (!ArrayBuffer.isView(view))
    throw new TypeError("expose: view must be a typed array, a Buffer or a DataView");
  if (!accesses.includes(access as string)) {
    throw new TypeError(
      `expose: access must be "read", "write" or "read_write", it is ${JSON.stringify(access)}`,
    );
  }
  if (isDetached(view.buffer)) throw detached("expose: the view's memory");
  const memory = view.buffer as ArrayBuffer & { readonly resizable?: boolean; readonly growable?: boolean };
  if (memory.resizable === true || memory.growable === true) {
    throw new TypeError("expose: view must not lie in a resizable buffer, its memory could move away");
  }
}
