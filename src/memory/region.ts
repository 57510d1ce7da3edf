/*
 * The room `memory`: regions, their grants and registrations, the pool, mapped files.
 * Promises: memory that a peer may still touch is never used again for something else. A key dies with its grant.
 * Registrations and slabs are bounded.
 * Takes: registration from `fabric`, the descriptors of regions from `wire`.
 */

import { RpcError } from "../base/errors/rpc-error.ts";
import { registerRegionClass } from "../wire/region-descriptor.ts";
import { watchForLeak } from "./leak-watch.ts";
import type { PutNotification } from "./put-notification.ts";
import type { QuarantinedMemory, RegionCore } from "./region-core.ts";
import type { RegionHandle, ShareOptions } from "./region-handle.ts";
import { type Access, type Granting, type OnGranted, regionBrand } from "./region-kind.ts";

/** Makes handles for the regions of one engine. */
export interface RegionSharing {
  share(region: Region, options: ShareOptions): RegionHandle;
}

let readCore: (region: Region) => RegionCore;
let readOnGranted: (region: Region) => OnGranted | undefined;

/**
 * Local memory that a call may grant to its peer. `engine.expose(view, { access })` makes one, the input of a call
 * carries it, and the handler reads or writes it in place. The grant ends with the call.
 *
 * The memory stays yours: read and write it at any time, but do not transfer its ArrayBuffer. `dispose` rejects new use
 * at once, and releases the memory when the last call that uses it has ended. `revoke` ends those calls. A slice shares
 * the memory: a peer that gets a slice reaches the slice only. A region that is garbage-collected without `dispose`
 * causes a `CinnabarLeakWarning`.
 *
 * @example
 * using region = engine.expose(new Float64Array(1024), { access: "read" });
 * await peer.client(Sums).sum({ numbers: region });
 */
export class Region<A extends Access = Access> implements Disposable, AsyncDisposable {
  readonly [regionBrand] = true as const;
  /** What a peer may do with the memory. */
  readonly access: Granting<A>;
  /** Length in bytes, over all segments. */
  readonly byteLength: number;
  readonly #core: RegionCore;
  readonly #sharing: RegionSharing | undefined;
  /** Keeps the parent region of this slice alive, so that it does not count as leaked. */
  readonly #parent: Region<A> | undefined;
  /** Not in the core: the core is kept until the region is disposed, and the function may hold the region. */
  readonly #onGranted: OnGranted | undefined;

  static {
    readCore = (region) => region.#core;
    readOnGranted = (region) => region.#onGranted;
  }

  /** @internal Regions are made by `engine.expose` and `slice`. */
  constructor(
    core: RegionCore,
    sharing?: RegionSharing,
    { parent, onGranted }: { readonly parent?: Region<A>; readonly onGranted?: OnGranted | undefined } = {},
  ) {
    this.#core = core;
    this.#sharing = sharing;
    this.#parent = parent;
    this.#onGranted = onGranted;
    this.byteLength = core.byteLength;
    this.access = core.access as unknown as Granting<A>;
    if (parent === undefined) watchForLeak(this, core);
  }

  /** The exposed memory in order: one view for each segment, none for an empty region. */
  get segments(): readonly Uint8Array[] {
    return this.#core.segments;
  }

  /**
   * The exposed memory of a contiguous region.
   *
   * @throws RpcError `failed_precondition` when the region has several `segments`.
   */
  get bytes(): Uint8Array {
    const { segments } = this.#core;
    if (segments.length === 0) return new Uint8Array(0);
    if (segments.length === 1) return segments[0] as Uint8Array;
    throw new RpcError({
      code: "failed_precondition",
      message: `the region has ${segments.length} segments: use \`segments\` instead of \`bytes\``,
    });
  }

  /** Whether `dispose` was called on the region or on its parent region. */
  get disposed(): boolean {
    return this.#core.disposed;
  }

  /** Whether `revoke` was called on the region or on its parent region. */
  get revoked(): boolean {
    return this.#core.revoked;
  }

  /** How many calls hold the region or a slice of it. 0: no peer can reach the memory. */
  get grants(): number {
    return this.#core.grants;
  }

  /**
   * A part of the region, across segments if need be; by default to the end. It ends with the region, or with its own
   * `dispose`. Slices need not be disposed.
   *
   * @throws RpcError `out_of_range` when the part does not lie inside the region; `failed_precondition` when the region
   * was disposed.
   */
  slice(offset: number, length: number = this.byteLength - offset): Region<A> {
    return new Region<A>(this.#core.slice(offset, length), this.#sharing, {
      parent: this.#parent ?? this,
    });
  }

  /** Rejects new use now. Releases the memory when the last call that holds it has ended. Safe to call twice. */
  dispose(): void {
    this.#core.dispose();
  }

  /**
   * Rejects new use, and ends the calls that hold the region or a slice of it: they reject with `aborted`, and their
   * peers are notified. Resolves when no peer can reach the memory. Silent peers delay that for 10 s at most;
   * `quarantinedBytes` of the result says how much memory they may still touch. `revoke` of a slice does not end calls
   * that hold the whole region.
   */
  revoke(): Promise<QuarantinedMemory> {
    return this.#core.revoke();
  }

  /**
   * Put notifications: one for each put into the region that has the option `notify`, for example
   * `call.put(local, region, { notify: n })`. The bytes of a put are in place before its notification. Notifications of
   * one sender come in the order in which its puts ended.
   *
   * The iteration ends when the region is disposed or revoked. There is one reader at a time; after it leaves the loop,
   * another can begin. Up to 1024 notifications wait for a reader. Beyond that the put rejects with
   * `resource_exhausted`. Where the fabric carries the notification with the put, the iterator rejects with it at the
   * gap instead. A slice's notifications go to its region unless the slice itself has a reader.
   *
   * @throws RpcError `failed_precondition` while there is another reader, or when the region was disposed.
   *
   * @example
   * for await (const { n, bytes } of exposed.notifications()) console.log(`block ${n}: ${bytes} bytes`);
   */
  notifications(): AsyncIterableIterator<PutNotification, undefined> {
    return this.#core.notifications();
  }

  /**
   * Makes a handle of the region, or of this slice: plain data for any input or output. Its holder may `engine.borrow`
   * the region until the lease ends or the region is disposed. The engine must listen on an address.
   *
   * @throws TypeError or RangeError for options that do not fit; RpcError `failed_precondition` when the region was
   * disposed or the engine does not listen, `resource_exhausted` beyond 4096 valid handles.
   *
   * @example
   * const page = exposed.share({ leaseMs: 10_000 }); // send it where a contract says handle("read")
   */
  share(options: ShareOptions = {}): RegionHandle<A> {
    this.#core.assertUsable();
    if (this.#sharing === undefined) throw new TypeError("share: the region does not belong to an engine");
    return this.#sharing.share(this as unknown as Region, options) as unknown as RegionHandle<A>;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /**
   * Disposes the region and waits until the last call that holds it has ended and no peer can reach the memory. Peers
   * that do not answer the end of a call delay that for 10 s at most; `grants` is not 0 then.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    this.dispose();
    await this.#core.idle();
  }
}

/** The core of a region, for grants, transfers and handles in the layers above. */
export function coreOf(region: Region): RegionCore {
  return readCore(region);
}

/** The function that a region's user registered for calls that are granted the region. A slice has no such function. */
export function onGrantedOf(region: Region): OnGranted | undefined {
  return readOnGranted(region);
}

registerRegionClass(Region);
