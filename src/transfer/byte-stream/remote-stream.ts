import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";
import type { RemoteRegion } from "../../memory/remote-region.ts";
import { builtin } from "../../wire/builtin.ts";
import { refuseClass } from "../../wire/codec.ts";
import { errorWord, packError } from "../../wire/fault.ts";
import type { StreamDescriptor } from "../../wire/stream-descriptor.ts";
import { requestInCall } from "../control/control-request.ts";
import type { PeerLink } from "../control/peer-link.ts";
import { streamError } from "./ring.ts";
import { remoteStreamBrand, type StreamDirection } from "./stream-kind.ts";

/** What a remote stream is made of. */
export interface RemoteRing {
  /** The call it came with. */
  readonly call: IncomingCall;
  /** The ring that the bytes go through. */
  readonly ring: RemoteRegion;
  readonly descriptor: StreamDescriptor;
  isOpen: boolean;
}

let ringOf: (stream: RemoteStream) => RemoteRing;

/**
 * A byte stream of the caller, as a handler receives it where the contract says `bulkStream(direction)`. Open it once,
 * with `call.readable(stream)` or `call.writable(stream)`.
 *
 * @example
 * for await (const chunk of call.readable(content)) await file.write(chunk);
 */
export class RemoteStream<D extends StreamDirection = StreamDirection> {
  readonly [remoteStreamBrand] = true as const;
  /** What the handler does: "read" or "write". */
  readonly direction: D;
  readonly #ring: RemoteRing;

  static {
    ringOf = (stream) => stream.#ring;
  }

  /** @internal Streams come out of messages. */
  constructor(call: IncomingCall, ring: RemoteRegion, descriptor: StreamDescriptor) {
    this.#ring = { call, ring, descriptor, isOpen: false };
    this.direction = (descriptor.direction === 1 ? "read" : "write") as D;
  }
}

/** What a stream is made of: it has no members for that, which editors would offer to users. */
export function remoteRingOf(stream: RemoteStream): RemoteRing {
  return ringOf(stream);
}

refuseClass(
  RemoteStream,
  "a byte stream cannot be sent here: a handler uses the stream of its caller, but cannot pass it on",
);

/** Chunks that an open stream holds at the handler's side: one is read or filled while the other moves. */
export const openBuffers = 2;

/**
 * Checks the stream that a handler opens, and marks it as open. The caller chose the length of its chunks. So their
 * memory here counts towards `limits.maxPullBytes`, until the call is answered.
 *
 * @throws TypeError when the argument is not a stream of that direction; RpcError `permission_denied` for a stream of
 * another call, `failed_precondition` when it is open already, `resource_exhausted`, or the error that ended the call.
 */
export function openStream(
  stream: unknown,
  direction: StreamDirection,
  call: IncomingCall,
  session: PeerLink,
): RemoteRing {
  if (!(stream instanceof RemoteStream) || stream.direction !== direction) {
    const name = direction === "read" ? "readable" : "writable";
    throw new TypeError(
      `${name}: the argument must be a byte stream of direction "${direction}" from this call's input`,
    );
  }
  const ring = remoteRingOf(stream);
  if (ring.call !== call) throw streamError("permission_denied", "the byte stream belongs to another call");
  if (ring.isOpen) throw streamError("failed_precondition", "the byte stream is open already");
  // The bytes taken now are given back when the call is answered, so that must be still to come.
  call.assertOpen();
  const { pulls } = session.account;
  const { limits } = session.services;
  const bytes = openBuffers * ring.descriptor.chunkBytes;
  // The budget admits one body above its limit when it is empty. A stream has no other bound, so it does not get that.
  if (bytes > limits.maxPullBytes || !pulls.take(bytes)) {
    throw streamError(
      "resource_exhausted",
      `the byte stream needs ${bytes} bytes here; limits.maxPullBytes is ${limits.maxPullBytes}`,
    );
  }
  const { onAnswered } = call;
  call.onAnswered = () => {
    onAnswered?.();
    pulls.give(bytes);
  };
  ring.isOpen = true;
  return ring;
}

/** Tells the caller that this side gives its stream up. If that fails, nothing changes. */
export function tellStopped(
  call: IncomingCall,
  session: PeerLink,
  stream: RemoteRing,
  error: RpcError,
): void {
  if (!call.open) return;
  requestInCall(call, session, builtin.stop, [
    stream.descriptor.stream,
    errorWord(error),
    { m: packError(error).m },
  ]).catch(() => {});
}
