import { RpcError } from "../../base/errors/rpc-error.ts";
import { type CallIdentity, callIdentityBytes, writeCallIdentity } from "../../wire/call-identity.ts";
import { type Metadata, packMetadata } from "../../wire/metadata/metadata.ts";
import { metadataLength } from "../../wire/metadata/metadata-block.ts";

// What stands in a frame before its body: the identity of a request, and metadata.

/**
 * The prefix of a request that has any.
 *
 * @throws RpcError `invalid_argument` when it does not fit the messages that the peer receives.
 */
export function requestPrefix(
  identity: CallIdentity | undefined,
  metadata: Uint8Array | undefined,
  maxBytes: number,
): Uint8Array {
  if (metadata === undefined) return writeCallIdentity(identity as CallIdentity);
  assertFits(metadata, maxBytes);
  return identity === undefined ? metadata : Buffer.concat([writeCallIdentity(identity), metadata]);
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
    origin: "local",
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
