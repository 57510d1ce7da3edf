import { hostOfAddress } from "../fabric/raw-address.ts";
import { hasHosts, parseUrl } from "../fabric/url.ts";
import { type Carrier, DecodeError, EncodeError, type RegionCodec } from "../wire/codec.ts";
import type { Session } from "./session.ts";

/** Who is at the other side of a session, and at which host it was reached or came from. */
export function carrierOf({ port, peerName, remote }: Session): Carrier | undefined {
  if (remote === undefined) return undefined;
  const { incarnation, address } = remote;
  if (!hasHosts(port.scheme)) return { incarnation, host: "" };
  // Whoever connected to us said where to answer; where we connected, we know the URL.
  const host = address.byteLength > 0 ? hostOfAddress(address) : parseUrl(peerName).host;
  return { incarnation, host };
}

/** How answers are decoded: nothing lent may be in them, handles may. */
export class AnswerCodec implements RegionCodec {
  readonly #session: Session;

  constructor(session: Session) {
    this.#session = session;
  }

  get carrier(): Carrier | undefined {
    return carrierOf(this.#session);
  }

  encodeRegion(): Uint8Array {
    throw new EncodeError("a region cannot travel here, only in the input of a call");
  }

  decodeRegion(): object {
    throw new DecodeError("a region arrived where none is expected");
  }
}
