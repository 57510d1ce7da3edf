import type { IncomingCall } from "../call/incoming-call.ts";
import { refuseClass } from "../wire/codec.ts";
import type { RegionDescriptor } from "../wire/region-descriptor.ts";
import { assertInside } from "./region.ts";
import { type Access, type Granting, remoteRegionBrand } from "./region-kind.ts";

const accessNames = ["", "read", "write", "read_write"] as const;

/**
 * A handle on memory of the caller: what a handler gets where the contract says `bulk(…)`. Read it by `call.get`, write it by `call.put`.
 * It is good until its call ends.
 */
export class RemoteRegion<A extends Access = Access> {
  readonly [remoteRegionBrand] = true as const;
  readonly access: Granting<A>;
  readonly byteLength: number;
  /** @internal The call it was lent to. */
  readonly call: IncomingCall;
  /** @internal */
  readonly key: bigint;
  /** @internal The provider's address of its first byte. */
  readonly address: bigint;

  /** @internal Handles come out of messages. */
  constructor(call: IncomingCall, descriptor: RegionDescriptor) {
    this.call = call;
    this.key = descriptor.key;
    this.address = descriptor.address;
    this.byteLength = descriptor.bytes;
    this.access = accessNames[descriptor.access] as unknown as Granting<A>;
  }

  /** A handle on a part. @throws RpcError `out_of_range` when the part does not lie inside. */
  slice(offset: number, length: number = this.byteLength - offset): RemoteRegion<A> {
    assertInside("slice", offset, length, this.byteLength);
    const access = accessNames.indexOf(this.access as unknown as Access);
    return new RemoteRegion(this.call, {
      key: this.key,
      address: this.address + BigInt(offset),
      bytes: length,
      access,
    });
  }
}

refuseClass(
  RemoteRegion,
  "a region cannot travel here: a handler can use the caller's memory, not pass it on",
);
