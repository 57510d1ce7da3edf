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

// The prefix of a frame before its body: the identity of a request, and metadata.

/**
 * The prefix of a request. Undefined without identity and metadata.
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

/** The prefix of an answer. Undefined without metadata. An error when the metadata exceed a limit. */
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

/** A copy of the block of metadata at `start` of a body that ends at `end`, or a message that names the fault. */
export function takeMetadata(slab: Buffer, start: number, end: number): Buffer | string {
  const length = metadataLength(slab, start, end);
  if (typeof length === "string") return length;
  const block = Buffer.allocUnsafe(length);
  slab.copy(block, 0, start, start + length);
  return block;
}

/** The prefix of a request. A session has one object, which reads each request in turn. */
export class RequestPrefix {
  identity: CallIdentity | undefined;
  metadata: Metadata | undefined;
  /** The length of the prefix, in bytes of the body. */
  bytes = 0;
  readonly #requests = new RequestMetadata();

  /** Reads the prefix of the body from `start` to `end` of the slab. Returns a message that names the fault, or "". */
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
      // Regions end with their request, so a request with regions cannot replace another one.
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

/** The longest block that a session keeps: an engine may have 10,000 sessions. */
const maxKeptBytes = 1024;
const none = Buffer.alloc(0);

/** Decodes now. Otherwise each read would decode its value again. */
const decodeAll = (metadata: Metadata | undefined): void => void metadata?.size;

/**
 * Takes the metadata of one session's requests. A block that equals the former one shares its `Metadata`: it is neither
 * checked, copied nor decoded again. Received metadata cannot be changed. A block with bytes, which a handler could
 * change, is not shared.
 */
export class RequestMetadata {
  #last: Metadata | undefined;
  #block: Buffer = none;
  /** The same bytes as `#block`. Set when the block has come twice. */
  #words: Int32Array | undefined;
  /** The length of the last block. */
  bytes = 0;

  /** The metadata at `start` of a body that ends at `end`, or a message that names the fault. */
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
