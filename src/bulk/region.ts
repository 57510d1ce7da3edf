import type { Loan } from "../call/outgoing-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Port } from "../fabric/port.ts";
import { registerRegionClass } from "../wire/codec.ts";
import type { RegionDescriptor } from "../wire/region-descriptor.ts";
import { watchForLeak } from "./leak-watch.ts";
import type { Notice } from "./notices.ts";
import type { RegionCore } from "./region-core.ts";
import type { RegionHandle, ShareOptions } from "./region-handle.ts";
import { type Access, type Granting, regionBrand } from "./region-kind.ts";

/**
 * Local memory that calls may lend to their peers: `engine.expose(view, { access })` makes one, a call's input carries it, the handler at
 * the other side reads or writes it in place. The right ends with the call.
 *
 * The memory stays the caller's: it may be read and written at any time, and must not be detached (transferred) while exposed.
 * `dispose` refuses new use at once and lets go of the memory when the last call that borrowed it has ended; until then the region keeps it
 * alive. `revoke` ends those calls. Slices share the memory, not the rights: a peer that is handed a slice can reach the slice only.
 */
export class Region<A extends Access = Access> implements Disposable, AsyncDisposable {
  readonly [regionBrand] = true as const;
  readonly access: Granting<A>;
  /** The length of all segments together. */
  readonly byteLength: number;
  readonly #core: RegionCore;
  /** Keeps what it was cut from from being taken for forgotten. */
  readonly #parent: Region<A> | undefined;

  /** @internal Regions are made by `engine.expose` and `slice`. */
  constructor(core: RegionCore, parent?: Region<A>) {
    this.#core = core;
    this.#parent = parent;
    this.byteLength = core.byteLength;
    this.access = core.access as unknown as Granting<A>;
    if (parent === undefined) watchForLeak(this, core);
  }

  /** The exposed memory, in order, neighbours joined: one view for each contiguous piece, none for an empty region. */
  get segments(): readonly Uint8Array[] {
    return this.#core.segments;
  }

  /**
   * The exposed memory of a region that is contiguous.
   *
   * @throws RpcError `failed_precondition` when it has several `segments`.
   */
  get bytes(): Uint8Array {
    const { segments } = this.#core;
    if (segments.length === 0) return new Uint8Array(0);
    if (segments.length === 1) return segments[0] as Uint8Array;
    throw new RpcError({
      code: "failed_precondition",
      message: `the region has ${segments.length} segments, its bytes are in several places: use \`segments\``,
      origin: "local",
    });
  }

  /** True for a slice, too, once the region it was cut from has been disposed. */
  get disposed(): boolean {
    return this.#core.disposed;
  }

  /** Whether `revoke` has been called, on it or on what it was cut from. */
  get revoked(): boolean {
    return this.#core.revoked;
  }

  /** How many calls hold it or a part of it now: 0 means that no peer can touch the memory. */
  get loans(): number {
    return this.#core.loans;
  }

  /**
   * A part of the region, lent by itself; over segments, too. It ends with the region, or by its own `dispose`; forgotten slices cost nothing.
   *
   * @throws RpcError `out_of_range` when the part does not lie inside.
   */
  slice(offset: number, length: number = this.byteLength - offset): Region<A> {
    return new Region<A>(this.#core.slice(offset, length), this.#parent ?? this);
  }

  /** Refuses new use now; lets go of the memory when the last call that holds it has ended. Safe to call twice. */
  dispose(): void {
    this.#core.dispose();
  }

  /**
   * Refuses new use and ends the calls that hold the region or a slice of it: their callers get `aborted`, the peers are told. Resolves when
   * nobody can touch the memory any more, which a peer that does not answer may hold up until it is lost. A slice's `revoke` leaves those
   * alone that hold all of the region.
   */
  revoke(): Promise<void> {
    return this.#core.revoke();
  }

  /**
   * The notices of puts into the region that asked for one (`call.put(…, { notify: n })`), in the order in which each sender's puts ended; the data is
   * in place before its notice. Ends when the region is disposed or revoked; leaving the loop detaches. One reader at a time; up to 1024 notices
   * wait for one. Beyond that either the put rejects with `resource_exhausted`, or, where its provider carries notices, the iterator does, after the
   * notices that came before the gap: then ask for a new one. A slice's notices come to the region it was cut from unless they are being read there.
   *
   * @throws RpcError `failed_precondition` when somebody reads them already, or the region has been disposed.
   */
  notifications(): AsyncIterableIterator<Notice, undefined> {
    return this.#core.notifications();
  }

  /**
   * Makes a handle on the region, or on this slice of it: plain data that travels in any input or output and may be passed on. Whoever has it may
   * `engine.borrow` the region until the lease is over or the region is disposed; the engine must listen somewhere.
   *
   * @throws RangeError for a lease that is none; RpcError `failed_precondition` when the region has been disposed or the engine listens nowhere,
   * `resource_exhausted` when 4096 handles are good already.
   */
  share(options: ShareOptions = {}): RegionHandle<A> {
    this.#core.assertUsable();
    const { sharing } = this.#core;
    if (sharing === undefined) throw new TypeError("share: the region belongs to no engine");
    return sharing.share(this as unknown as Region, options) as unknown as RegionHandle<A>;
  }

  /** @internal Calls `listener` when it is disposed; returns how to forget that. */
  onDisposed(listener: () => void): () => void {
    return this.#core.onDisposed(listener);
  }

  /** @internal A put into it has landed. False when nobody can be told: too many notices wait, or it has been disposed. */
  notify(notice: Notice): boolean {
    return this.#core.notify(notice);
  }

  /** @internal A put into it has landed whose notice cannot be given, and its sender cannot be told. */
  loseNotice(): void {
    this.#core.loseNotice();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** Disposes the region and waits until the last call that holds it has ended. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.dispose();
    await this.#core.idle();
  }

  /**
   * @internal Lends the region to the peer behind `port` until the loan is released. `onRevoke` is called when the region is revoked, and must see
   * to it that the loan is released soon.
   */
  lend(port: Port, onRevoke: () => void): { readonly descriptor: RegionDescriptor; readonly loan: Loan } {
    const loan = this.#core.lend(port, onRevoke);
    return { descriptor: loan.descriptor, loan };
  }

  /** @internal A transfer of this side's own has it for its local memory from now on, until `endLocalUse`. Throws when it cannot be used. */
  beginLocalUse(): void {
    this.#core.assertUsable();
    this.#core.beginLocalUse();
  }

  /** @internal */
  endLocalUse(): void {
    this.#core.endLocalUse();
  }
}

registerRegionClass(Region);
