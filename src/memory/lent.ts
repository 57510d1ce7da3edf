import type { Region } from "../bulk/region.ts";
import { type Access, grants } from "../bulk/region-kind.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Session } from "../session/session.ts";

/**
 * The region that the peer names by the key of its loan, checked for the right and the range it wants to use: what the owner does before it touches
 * its memory for somebody else.
 *
 * @throws RpcError `not_found`, `permission_denied` or `out_of_range`, to be told to the peer.
 */
export function lentTo(
  session: Session,
  key: bigint,
  needed: Access | undefined,
  offset: number,
  bytes: number,
): Region {
  const lent = session.lent.find(key);
  if (lent === undefined) throw refused("not_found", "the region is not lent, or not any more");
  const { region, access } = lent;
  if (needed !== undefined && !grants(access, needed))
    throw refused("permission_denied", `the region was exposed for "${access}", this needs "${needed}"`);
  if (offset + bytes > region.byteLength) {
    throw refused(
      "out_of_range",
      `offset ${offset} and length ${bytes} do not lie inside the ${region.byteLength} bytes that were lent`,
    );
  }
  return region;
}

function refused(code: "not_found" | "permission_denied" | "out_of_range", message: string): RpcError {
  return new RpcError({ code, message, origin: "remote" });
}
