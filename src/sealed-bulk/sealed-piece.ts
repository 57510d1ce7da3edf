import { asCount, isUint64 } from "../control/control-method.ts";
import type { PeerLink } from "../control/peer-link.ts";
import type { SealedPiece } from "../control/sealed-bulk.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { StagingPiece } from "./staging.ts";

/** Pieces of one request, so that a round trip serves more than one. */
export const piecesOfRequest = 2;
/** Pieces of one session and direction that may be under way: sealing, reading and opening overlap. */
export const piecesInFlight = 2 * piecesOfRequest;

const tagBytes = 16;

/** Where a sealed piece lies and what opens it, as it travels. */
export function sealedParts(
  place: StagingPiece,
  { counter, tag }: Pick<SealedPiece, "counter" | "tag">,
): unknown[] {
  const { key, base } = place.registered;
  return [key, base + BigInt(place.offset), counter, tag];
}

/** How many values `sealedParts` gives. */
export const sealedPartCount = 4;

/** The reverse; undefined where the parts have another form. */
export function asSealedPiece(parts: readonly unknown[]): SealedPiece | undefined {
  const [key, address, count, tag] = parts;
  const counter = asCount(count);
  if (!isUint64(key) || !isUint64(address) || counter === undefined) return undefined;
  if (!(tag instanceof Uint8Array) || tag.byteLength !== tagBytes) return undefined;
  return { key, address, counter, tag };
}

/** Parts that come in groups of `count`, read one by one; undefined where one of them has another form. */
export function readGroups<Group>(
  parts: readonly unknown[],
  count: number,
  read: (group: readonly unknown[]) => Group | undefined,
): Group[] | undefined {
  const groups: Group[] = [];
  if (parts.length === 0 || parts.length % count !== 0 || parts.length > piecesOfRequest * count)
    return undefined;
  for (let at = 0; at < parts.length; at += count) {
    const group = read(parts.slice(at, at + count));
    if (group === undefined) return undefined;
    groups.push(group);
  }
  return groups;
}

/** The ciphertext is not what its owner has sealed. */
export function forged(op: string, { peerName }: Pick<PeerLink, "peerName">): RpcError {
  const message = `${op}: bytes from ${peerName} were changed on their way: their tag is wrong`;
  return new RpcError({ code: "data_loss", message, origin: "local" });
}
