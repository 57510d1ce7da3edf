import { RpcError } from "../../base/errors/rpc-error.ts";
import type { Port } from "../../fabric/port.ts";
import {
  type CallIdentity,
  callIdentityBytes,
  readCallIdentity,
  writeCallIdentity,
} from "../../wire/call-identity.ts";
import { frameFlag } from "../../wire/frame.ts";
import { type Metadata, packMetadata, receivedMetadata } from "../../wire/metadata/metadata.ts";
import { hasBytes, metadataLength } from "../../wire/metadata/metadata-block.ts";

// What stands in a frame before its body: the identity of a request, and metadata.

/**
 * The prefix of a request; undefined when there is none.
 *
 * @throws RpcError `invalid_argument` when it does not fit the messages that the peer receives.
 */
export function requestPrefix(
  identity: CallIdentity | undefined,
  metadata: Uint8Array | undefined,
  maxBytes: number,
): Uint8Array | undefined {
  if (metadata !== undefined) assertFits(metadata, maxBytes);
  if (identity === undefined) return metadata;
  const identified = writeCallIdentity(identity);
  return metadata === undefined ? identified : Buffer.concat([identified, metadata]);
}

/** The prefix of an answer; undefined when there is none, an error when the metadata exceed a limit. */
export function answerPrefix(
  metadata: Metadata | undefined,
  maxBytes: number,
): Uint8Array | undefined | RpcError {
  if (metadata === undefined) return undefined;
  try {
    const block = packMetadata(metadata);
    if (block !== undefined) assertFits(block, maxBytes);
    return block;
  } catch (error) {
    return error as RpcError;
  }
}

/** @throws RpcError when metadata does not fit the messages that the peer receives. */
function assertFits(metadata: Uint8Array, maxBytes: number): void {
  if (metadata.byteLength + callIdentityBytes <= maxBytes) return;
  throw new RpcError({
    code: "invalid_argument",
    message: `metadata of ${metadata.byteLength} bytes does not fit the messages that the peer receives`,
  });
}

/** A copy of the block of metadata at `start` of a body that ends at `end`, or a sentence that names the fault. */
export function takeMetadata(slab: Buffer, start: number, end: number): Buffer | string {
  const length = metadataLength(slab, start, end);
  if (typeof length === "string") return length;
  const block = Buffer.allocUnsafe(length);
  slab.copy(block, 0, start, start + length);
  return block;
}

/** What stands before the input of a request. One a session, read for each request in turn. */
export class RequestPrefix {
  identity: CallIdentity | undefined;
  metadata: Metadata | undefined;
  /** Bytes of the body that it takes. */
  bytes = 0;
  readonly #requests = new RequestMetadata();

  /** Reads it from the body that stands at `start` to `end` of the slab. Returns a sentence that names the fault, or "". */
  take(
    { slab, slabView }: Pick<Port, "slab" | "slabView">,
    start: number,
    end: number,
    flags: number,
  ): string {
    this.identity = undefined;
    this.metadata = undefined;
    this.bytes = 0;
    if ((flags & frameFlag.identity) !== 0) {
      const identity = readCallIdentity(slabView, start, end);
      if (typeof identity === "string") return identity;
      // Regions end with their request, so one that carries them cannot stand for another.
      if ((flags & frameFlag.grants) === 0) this.identity = identity;
      this.bytes = callIdentityBytes;
    }
    if ((flags & frameFlag.metadata) !== 0) {
      const metadata = this.#requests.take(slab, slabView, start + this.bytes, end);
      if (typeof metadata === "string") return metadata;
      this.metadata = metadata;
      this.bytes += this.#requests.bytes;
    }
    return "";
  }
}

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
