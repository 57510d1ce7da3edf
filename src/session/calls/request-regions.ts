import type { IncomingCall } from "../../call/incoming-call.ts";
import type { OutgoingCall } from "../../call/outgoing-call.ts";
import { type Grant, withEnds } from "../../memory/grant.ts";
import type { GrantedRegions } from "../../memory/granted-regions.ts";
import { coreOf, onGrantedOf, Region } from "../../memory/region.ts";
import { unregistered } from "../../memory/region-registration.ts";
import { RemoteRegion } from "../../memory/remote-region.ts";
import type { PeerLink } from "../../transfer/control/peer-link.ts";
import { DecodeError, EncodeError, type RegionCodec } from "../../wire/extension.ts";
import { frameFlag } from "../../wire/frame.ts";
import {
  type RegionDescriptor,
  readRegionDescriptor,
  writeRegionDescriptor,
} from "../../wire/region-descriptor.ts";
import { AnswerCodec } from "../connection/peer-identity.ts";

/** More regions than this in one request are a mistake or an attack. */
export const maxRegions = 1024;
/** Each segment is registered: this bounds what one request can cost both sides. */
export const maxSegments = 65_536;

/**
 * Grants the regions in an outgoing request to the peer for the time of the call. A session has one codec, used for
 * each call in turn.
 */
export class GrantingCodec implements RegionCodec {
  readonly #peer: PeerLink;
  readonly #grants: GrantedRegions;
  /** The flags of the frame just encoded. */
  flags = 0;
  #call: OutgoingCall | undefined;
  #count = 0;
  #segments = 0;

  constructor(peer: PeerLink) {
    this.#peer = peer;
    this.#grants = peer.grants;
  }

  for(call: OutgoingCall): this {
    this.#call = call;
    this.flags = 0;
    this.#count = 0;
    this.#segments = 0;
    return this;
  }

  encodeRegion(region: object): Uint8Array {
    const call = this.#call;
    if (!(region instanceof Region) || call === undefined)
      throw new EncodeError("only regions can be granted");
    if (call.terms.isOneWay)
      throw new EncodeError("a one-way call carries no regions: nobody would say when they are free");
    if (++this.#count > maxRegions) throw new EncodeError(`a request can carry ${maxRegions} regions`);
    this.#segments += region.segments.length;
    if (this.#segments > maxSegments)
      throw new EncodeError(`the regions of a request can have ${maxSegments} segments together`);
    const keys = this.#peer.sealedOwner === undefined ? this.#grants.keys : unregistered;
    const grant = coreOf(region).grantTo(keys, (why) => call.onRevoked(why), this.#grants.lasting);
    const { descriptor } = grant;
    call.addGrant(this.#record(region, grant, descriptor));
    const onEnded = onGrantedOf(region)?.(this.#peer.peerName);
    if (onEnded !== undefined) call.observe(onEnded);
    this.flags = frameFlag.grants;
    return writeRegionDescriptor(descriptor);
  }

  /** The peer can ask about a grant while it lasts, and no longer. */
  #record(region: Region, grant: Grant, { segments }: RegionDescriptor): Grant {
    const [first] = segments;
    if (first === undefined) return grant;
    const { key } = first;
    const grants = this.#grants;
    grants.add(key, region, grant.isByRequest !== true);
    return withEnds(grant, {
      release(onReleased) {
        grants.delete(key);
        grant.release(onReleased);
      },
    });
  }

  decodeRegion(): object {
    throw new DecodeError("a region arrived in a response");
  }
}

/**
 * Turns the descriptors in an incoming request into handles bound to its call. A session has one codec, used for each
 * call in turn.
 */
export class GrantedCodec extends AnswerCodec {
  /** The call whose input is decoded, and the flags of its request. The decoding code sets them. */
  call: IncomingCall | undefined;
  flags = 0;
  /** The call whose regions are counted. */
  #counted: IncomingCall | undefined;
  #count = 0;
  #segments = 0;

  override decodeRegion(bytes: Uint8Array): object {
    if ((this.flags & frameFlag.grants) === 0)
      throw new DecodeError("a region arrived in a request that grants none");
    if (this.#counted !== this.call) {
      this.#counted = this.call;
      this.#count = 0;
      this.#segments = 0;
    }
    const descriptor = readRegionDescriptor(bytes);
    if (typeof descriptor === "string") throw new DecodeError(descriptor);
    if (++this.#count > maxRegions)
      throw new DecodeError(`a request carries more than ${maxRegions} regions`);
    this.#segments += descriptor.segments.length;
    if (this.#segments > maxSegments)
      throw new DecodeError(`the regions of a request have more than ${maxSegments} segments`);
    return new RemoteRegion(this.call as IncomingCall, descriptor);
  }
}
