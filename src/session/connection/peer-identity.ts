import { hostOfAddress } from "../../fabric/host.ts";
import { hasHosts, parseUrl } from "../../fabric/libfabric/url.ts";
import type { Port } from "../../fabric/port.ts";
import { DecodeError, EncodeError, type PeerIdentity, type RegionCodec } from "../../wire/extension.ts";
import type { Greeting } from "../../wire/handshake.ts";

/** The part of a session that identifies its peer. */
export interface IdentifiedPeer {
  readonly port: Pick<Port, "scheme">;
  readonly peerName: string;
  readonly remote: Greeting | undefined;
}

/** The identity of a session's peer, and the host at which it was reached or from which it came. */
function peerIdentityOf({ port, peerName, remote }: IdentifiedPeer): PeerIdentity | undefined {
  if (remote === undefined) return undefined;
  const { incarnation, address } = remote;
  if (!hasHosts(port.scheme)) return { incarnation, host: "" };
  // A peer that connected to this side gave its return address. A peer that this side connected to has a URL.
  const host = address.byteLength > 0 ? hostOfAddress(address) : parseUrl(peerName).host;
  return { incarnation, host };
}

/** Decodes answers: they may have handles, but no regions. A codec for requests extends it. */
export class AnswerCodec implements RegionCodec {
  readonly #session: IdentifiedPeer;

  constructor(session: IdentifiedPeer) {
    this.#session = session;
  }

  get peer(): PeerIdentity | undefined {
    return peerIdentityOf(this.#session);
  }

  encodeRegion(): Uint8Array {
    throw new EncodeError("a region cannot be sent here, only in the input of a call");
  }

  decodeRegion(_descriptor: Uint8Array): object {
    throw new DecodeError("a region arrived where none is expected");
  }
}
