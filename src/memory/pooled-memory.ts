import { RpcError } from "../base/errors/rpc-error.ts";
import type { Region } from "./region.ts";
import type { Access } from "./region-kind.ts";

/** The class of a typed array, or DataView. */
export interface ViewConstructor<V extends ArrayBufferView> {
  readonly name: string;
  /** A DataView has none: its elements are bytes. */
  readonly BYTES_PER_ELEMENT?: number;
  new (buffer: ArrayBuffer, byteOffset: number, length: number): V;
}

/** Is told when pooled memory is disposed. */
export interface PooledMemoryListener {
  onDisposed(): void;
}

/**
 * Memory from `engine.pool.take(bytes)`. It is yours until `dispose`, which `using` calls. Then it returns to the pool
 * as soon as no transfer and no region uses it. After `dispose` its bytes belong to somebody else: keep no view of it.
 */
export class PooledMemory<A extends Access = never> implements Disposable {
  /** Length in bytes, as asked for. */
  readonly byteLength: number;
  readonly #bytes: Uint8Array<ArrayBuffer>;
  readonly #owner: PooledMemoryListener;
  readonly #region: Region<A> | undefined;
  #disposed = false;

  /** @internal Memory comes from `pool.take`. */
  constructor(bytes: Uint8Array<ArrayBuffer>, owner: PooledMemoryListener, region?: Region<A>) {
    this.byteLength = bytes.byteLength;
    this.#bytes = bytes;
    this.#owner = owner;
    this.#region = region;
  }

  /**
   * The memory as bytes: exactly as many as were asked for.
   *
   * @throws RpcError `failed_precondition` after `dispose`.
   */
  get bytes(): Uint8Array<ArrayBuffer> {
    this.#assertUsable();
    return this.#bytes;
  }

  /**
   * The same memory as another view, without a copy: `memory.as(Float64Array)`.
   *
   * @throws RangeError when the length is not a multiple of the element size; RpcError `failed_precondition` after
   * `dispose`.
   */
  as<V extends ArrayBufferView>(view: ViewConstructor<V>): V {
    this.#assertUsable();
    const length = this.byteLength / (view.BYTES_PER_ELEMENT ?? 1);
    if (!Number.isInteger(length)) {
      throw new RangeError(
        `as: ${this.byteLength} bytes are not a multiple of ${view.BYTES_PER_ELEMENT}, the element size of ${view.name}`,
      );
    }
    return new view(this.#bytes.buffer, this.#bytes.byteOffset, length);
  }

  /**
   * The memory as a region for calls, when it was taken with `access`. It is disposed with the memory.
   *
   * @throws RpcError `failed_precondition` without `access`, and after `dispose`.
   */
  get region(): Region<A> {
    this.#assertUsable();
    if (this.#region !== undefined) return this.#region;
    throw new RpcError({
      code: "failed_precondition",
      message: "the memory has no region: take it with the option `access`",
      origin: "local",
    });
  }

  /** Whether `dispose` was called. */
  get disposed(): boolean {
    return this.#disposed;
  }

  /**
   * Returns the memory to the pool: at once, or when the last transfer or region that uses it is done. Safe to call
   * twice.
   */
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
      message: "the memory has been disposed; it belongs to the pool again",
      origin: "local",
    });
  }
}
