import { RpcError } from "../errors/rpc-error.ts";
import type { Region } from "./region.ts";
import type { Access } from "./region-kind.ts";

/** The constructor of a typed array, or DataView. */
export interface ViewConstructor<V extends ArrayBufferView> {
  readonly name: string;
  /** A DataView has none: it counts in bytes. */
  readonly BYTES_PER_ELEMENT?: number;
  new (buffer: ArrayBuffer, byteOffset: number, length: number): V;
}

/** Where memory goes back to. */
export interface PooledMemoryOwner {
  onDisposed(): void;
}

/**
 * Memory taken from an engine's pool: `engine.pool.take(bytes)`. It is the taker's until `dispose`, which `using` calls, and goes back to the pool
 * when no transfer and no region uses it any more. After that its bytes are somebody else's: keep no view of it.
 */
export class PooledMemory<A extends Access = never> implements Disposable {
  readonly byteLength: number;
  readonly #bytes: Uint8Array<ArrayBuffer>;
  readonly #owner: PooledMemoryOwner;
  readonly #region: Region<A> | undefined;
  #disposed = false;

  /** @internal Memory comes from `pool.take`. */
  constructor(bytes: Uint8Array<ArrayBuffer>, owner: PooledMemoryOwner, region?: Region<A>) {
    this.byteLength = bytes.byteLength;
    this.#bytes = bytes;
    this.#owner = owner;
    this.#region = region;
  }

  /**
   * The memory: exactly as many bytes as were asked for.
   *
   * @throws RpcError `failed_precondition` after `dispose`.
   */
  get bytes(): Uint8Array<ArrayBuffer> {
    this.#assertUsable();
    return this.#bytes;
  }

  /**
   * The same memory as another view, not copied: `memory.as(Float64Array)`.
   *
   * @throws RangeError when its length is no whole number of elements; RpcError `failed_precondition` after `dispose`.
   */
  as<V extends ArrayBufferView>(view: ViewConstructor<V>): V {
    this.#assertUsable();
    const length = this.byteLength / (view.BYTES_PER_ELEMENT ?? 1);
    if (!Number.isInteger(length)) {
      throw new RangeError(
        `as: ${this.byteLength} bytes are no whole number of elements of ${view.name}, which have ${view.BYTES_PER_ELEMENT} bytes`,
      );
    }
    return new view(this.#bytes.buffer, this.#bytes.byteOffset, length);
  }

  /**
   * The memory as a region, to be lent to calls, when it was taken with an `access`. It ends with the memory.
   *
   * @throws RpcError `failed_precondition` without an access, and after `dispose`.
   */
  get region(): Region<A> {
    this.#assertUsable();
    if (this.#region !== undefined) return this.#region;
    throw new RpcError({
      code: "failed_precondition",
      message: "the memory was taken without an access, so it has no region",
      origin: "local",
    });
  }

  get disposed(): boolean {
    return this.#disposed;
  }

  /** Gives the memory back: to the pool at once, or when the last that uses it is done. Safe to call twice. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#region?.dispose();
    this.#owner.onDisposed();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  #assertUsable(): void {
    if (!this.#disposed) return;
    throw new RpcError({
      code: "failed_precondition",
      message: "the memory has been disposed: it is the pool's again",
      origin: "local",
    });
  }
}
