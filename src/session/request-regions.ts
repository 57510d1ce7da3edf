import { Region } from "../bulk/region.ts";
import { RemoteRegion } from "../bulk/remote-region.ts";
import { RemoteStream } from "../bulk/remote-stream.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import type { Loan, OutgoingCall } from "../call/outgoing-call.ts";
import type { Port } from "../fabric/port.ts";
import { type Carrier, DecodeError, EncodeError, type RegionCodec } from "../wire/codec.ts";
import { frameFlag } from "../wire/frame.ts";
import { readRegionDescriptor, writeRegionDescriptor } from "../wire/region-descriptor.ts";
import { readStreamDescriptor, streamHeaderBytes } from "../wire/stream-descriptor.ts";
import { carrierOf } from "./carrier.ts";
import type { LentRegions } from "./lent-regions.ts";
import { LentStream } from "./lent-stream.ts";
import type { Session } from "./session.ts";

/** More regions than this in one request are a mistake or an attack. */
export const maxRegions = 1024;
/** Each segment is registered: this bounds what one request can cost both sides. */
export const maxSegments = 65_536;

/** Lends the regions inside an outgoing request to the peer for the time of the call. One a session, set to each call in turn. */
export class RegionLender implements RegionCodec {
  readonly #session: Session;
  readonly #port: Port;
  readonly #lent: LentRegions;
  #call: OutgoingCall | undefined;
  #count = 0;
  #segments = 0;

  constructor(session: Session) {
    this.#session = session;
    this.#port = session.port;
    this.#lent = session.lent;
  }

  for(call: OutgoingCall): this {
    this.#call = call;
    this.#count = 0;
    this.#segments = 0;
    return this;
  }

  /** The flags of the frame just encoded. */
  get flags(): number {
    return this.#count > 0 ? frameFlag.grants : 0;
  }

  encodeRegion(region: object): Uint8Array {
    const call = this.#call;
    if (!(region instanceof Region) || call === undefined) throw new EncodeError("only regions can be lent");
    if (++this.#count > maxRegions) throw new EncodeError(`a request can carry ${maxRegions} regions`);
    this.#segments += region.segments.length;
    if (this.#segments > maxSegments)
      throw new EncodeError(`the regions of a request can have ${maxSegments} segments together`);
    const { descriptor, loan } = region.lend(this.#port, () => call.onRevoked());
    call.lend(this.#record(region, loan, descriptor.segments[0]?.key));
    return writeRegionDescriptor(descriptor);
  }

  /** What the peer asks about finds the loan as long as it lasts, and no longer. */
  #record(region: Region, loan: Loan, key: bigint | undefined): Loan {
    if (key === undefined) return loan;
    const lent = this.#lent;
    lent.add(key, region);
    return {
      bytes: loan.bytes,
      release(onReleased) {
        lent.delete(key);
        loan.release(onReleased);
      },
    };
  }

  encodeStream(stream: object): Uint8Array {
    if (!(stream instanceof LentStream) || this.#call === undefined)
      throw new EncodeError("only byte streams can be lent");
    return stream.board(this.#session, this.#call, (region) => this.encodeRegion(region));
  }

  decodeRegion(): object {
    throw new DecodeError("a region arrived in a response");
  }
}

/** Turns the descriptors inside an incoming request into handles bound to its call. One a session, set to each call in turn. */
export class RegionBorrower implements RegionCodec {
  readonly #session: Session;
  #call: IncomingCall | undefined;
  #count = 0;
  #segments = 0;

  constructor(session: Session) {
    this.#session = session;
  }

  get carrier(): Carrier | undefined {
    return carrierOf(this.#session);
  }

  for(call: IncomingCall): this {
    this.#call = call;
    this.#count = 0;
    this.#segments = 0;
    return this;
  }

  encodeRegion(): Uint8Array {
    throw new EncodeError("a region cannot travel here, only in the input of a call");
  }

  decodeRegion(bytes: Uint8Array): object {
    const descriptor = readRegionDescriptor(bytes);
    if (typeof descriptor === "string") throw new DecodeError(descriptor);
    if (++this.#count > maxRegions)
      throw new DecodeError(`a request carries more than ${maxRegions} regions`);
    this.#segments += descriptor.segments.length;
    if (this.#segments > maxSegments)
      throw new DecodeError(`the regions of a request have more than ${maxSegments} segments`);
    return new RemoteRegion(this.#call as IncomingCall, descriptor);
  }

  decodeStream(bytes: Uint8Array): object {
    const descriptor = readStreamDescriptor(bytes);
    if (typeof descriptor === "string") throw new DecodeError(descriptor);
    const ring = this.decodeRegion(bytes.subarray(streamHeaderBytes)) as RemoteRegion;
    return new RemoteStream(this.#call as IncomingCall, ring, descriptor);
  }
}
