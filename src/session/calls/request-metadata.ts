import { type Metadata, receivedMetadata } from "../../wire/metadata/metadata.ts";
import { hasBytes } from "../../wire/metadata/metadata-block.ts";
import { takeMetadata } from "./frame-prefix.ts";

/** A session keeps no longer block than this: an engine may have 10,000 of them. */
const maxKeptBytes = 1024;
const none = Buffer.alloc(0);

/** Otherwise each look decodes the value that it finds. */
const decodeAll = (metadata: Metadata | undefined): void => void metadata?.size;

/**
 * Takes the metadata of one session's requests. A block that equals the one before shares its `Metadata`: it is neither
 * checked, copied nor decoded again. Received metadata cannot be changed; a block with bytes, which a handler could
 * change, is not shared.
 */
export class RequestMetadata {
  #last: Metadata | undefined;
  #block: Buffer = none;
  /** The same as `#block`, since it was seen twice. */
  #words: Int32Array | undefined;
  /** How long the block was that was taken last. */
  bytes = 0;

  /** What stands at `start` of a body that ends at `end`, or a sentence that names the fault. */
  take(slab: Buffer, view: DataView, start: number, end: number): Metadata | string {
    const last = this.#last;
    if (last !== undefined && this.#isSame(slab, view, start, end)) {
      this.bytes = this.#block.byteLength;
      return last;
    }
    const block = takeMetadata(slab, start, end);
    if (typeof block === "string") return block;
    const metadata = receivedMetadata(block);
    this.bytes = block.byteLength;
    this.#words = undefined;
    this.#last = block.byteLength <= maxKeptBytes && !hasBytes(block) ? metadata : undefined;
    this.#block = this.#last === undefined ? none : block;
    return metadata;
  }

  #isSame(slab: Buffer, view: DataView, start: number, end: number): boolean {
    const block = this.#block;
    const { byteLength } = block;
    if (byteLength > end - start) return false;
    const words = this.#words;
    if (words !== undefined) {
      for (let i = 0; i < words.length; i++)
        if (view.getInt32(start + 4 * i, true) !== words[i]) return false;
      return true;
    }
    for (let i = 0; i < byteLength; i++) if (slab[start + i] !== block[i]) return false;
    this.#words = new Int32Array(block.buffer.slice(block.byteOffset, block.byteOffset + byteLength));
    decodeAll(this.#last);
    return true;
  }
}
