import type { IncomingCall } from "../call/incoming-call.ts";
import { refuseClass } from "../wire/codec.ts";
import type { StreamDescriptor } from "../wire/stream-descriptor.ts";
import type { RemoteRegion } from "./remote-region.ts";
import { remoteStreamBrand, type StreamDirection } from "./stream-kind.ts";

/**
 * A byte stream of the caller's: what a handler gets where the contract says `bulkStream(…)`. `call.readable` or `call.writable` opens it, once.
 */
export class RemoteStream<D extends StreamDirection = StreamDirection> {
  readonly [remoteStreamBrand] = true as const;
  readonly direction: D;
  /** @internal The call it came with. */
  readonly call: IncomingCall;
  /** @internal The ring that the bytes go through. */
  readonly ring: RemoteRegion;
  /** @internal */
  readonly descriptor: StreamDescriptor;
  /** @internal */
  opened = false;

  /** @internal Streams come out of messages. */
  constructor(call: IncomingCall, ring: RemoteRegion, descriptor: StreamDescriptor) {
    this.call = call;
    this.ring = ring;
    this.descriptor = descriptor;
    this.direction = (descriptor.direction === 1 ? "read" : "write") as D;
  }
}

refuseClass(RemoteStream, "a byte stream cannot travel here: a handler can use the caller's, not pass it on");
