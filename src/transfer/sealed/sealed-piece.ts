import { RpcError } from "../../base/errors/rpc-error.ts";
import { asCount, isUint64 } from "../control/control-method.ts";
import type { PeerLink } from "../control/peer-link.ts";
import type { SealedPiece } from "../control/sealed-bulk.ts";
import type { StagingPiece } from "./staging.ts";

/** Pieces of one session and direction for which its sealer has memory: some are sealed while others are read. */
export const piecesInFlight = 4;

const tagBytes = 16;

/** How many values `sealedParts` gives. */
const sealedPartCount = 4;

/** Where a sealed piece lies and what opens it, as it travels. */
export function sealedParts(
  place: StagingPiece,
  { counter, tag }: Pick<SealedPiece, "counter" | "tag">,
): unknown[] {
  const { key, base } = place.registered;
  return [key, base + BigInt(place.offset), counter, tag];
}

/** The reverse; undefined where the parts have another form. */
export function asSealedPiece(parts: readonly unknown[]): SealedPiece | undefined {
  if (parts.length !== sealedPartCount) return undefined;
  const [key, address, count, tag] = parts;
  const counter = asCount(count);
  if (!isUint64(key) || !isUint64(address) || counter === undefined) return undefined;
  if (!(tag instanceof Uint8Array) || tag.byteLength !== tagBytes) return undefined;
  return { key, address, counter, tag };
}

/** The ciphertext is not what its owner has sealed. */
export function forged(op: string, { peerName }: Pick<PeerLink, "peerName">): RpcError {
  const message = `${op}: bytes from ${peerName} were changed on their way: their tag is wrong`;
  return new RpcError({ code: "data_loss", message, origin: "local" });
}
