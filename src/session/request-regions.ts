import { Region } from "../bulk/region.ts";
import { RemoteRegion } from "../bulk/remote-region.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import type { OutgoingCall } from "../call/outgoing-call.ts";
import type { Port } from "../fabric/port.ts";
import { DecodeError, EncodeError, type RegionCodec } from "../wire/codec.ts";
import { frameFlag } from "../wire/frame.ts";
import { readRegionDescriptor, writeRegionDescriptor } from "../wire/region-descriptor.ts";

/** More regions than this in one request are a mistake or an attack. */
const maxRegions = 1024;

/** Lends the regions inside an outgoing request to the peer for the time of the call. One a session, set to each call in turn. */
export class RegionLender implements RegionCodec {
  readonly #port: Port;
  #call: OutgoingCall | undefined;
  #count = 0;

  constructor(port: Port) {
    this.#port = port;
  }

  for(call: OutgoingCall): this {
    this.#call = call;
    this.#count = 0;
    return this;
  }

  /** The flags of the frame just encoded. */
  get flags(): number {
    return this.#count > 0 ? frameFlag.grants : 0;
  }

  encodeRegion(region: object): Uint8Array {
    if (!(region instanceof Region) || this.#call === undefined)
      throw new EncodeError("only regions can be lent");
    if (++this.#count > maxRegions) throw new EncodeError(`a request can carry ${maxRegions} regions`);
    const { descriptor, loan } = region.lend(this.#port);
    this.#call.lend(loan);
    return writeRegionDescriptor(descriptor);
  }

  decodeRegion(): object {
    throw new DecodeError("a region arrived in a response");
  }
}

/** Turns the descriptors inside an incoming request into handles bound to its call. One a session, set to each call in turn. */
export class RegionBorrower implements RegionCodec {
  #call: IncomingCall | undefined;

  for(call: IncomingCall): this {
    this.#call = call;
    return this;
  }

  encodeRegion(): Uint8Array {
    throw new EncodeError("a region cannot travel here, only in the input of a call");
  }

  decodeRegion(bytes: Uint8Array): object {
    const descriptor = readRegionDescriptor(bytes);
    if (typeof descriptor === "string") throw new DecodeError(descriptor);
    return new RemoteRegion(this.#call as IncomingCall, descriptor);
  }
}
