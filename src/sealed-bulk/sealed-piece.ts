import { asCount, isUint64 } from "../control/control-method.ts";
import type { PeerLink } from "../control/peer-link.ts";
import type { SealedPiece } from "../control/sealed-bulk.ts";
import { RpcError } from "../errors/rpc-error.ts";

/** Pieces of one session and direction that may be under way: reading, sealing and opening overlap. */
export const piecesInFlight = 4;

const tagBytes = 16;

/** A piece as it travels: `[key, address, counter, tag]`; undefined where the value has another form. */
export function asSealedPiece(value: unknown): SealedPiece | undefined {
  if (!Array.isArray(value) || value.length !== 4) return undefined;
  const [key, address, count, tag] = value;
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
