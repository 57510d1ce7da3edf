import { RemoteStream } from "../bulk/remote-stream.ts";
import type { StreamDirection } from "../bulk/stream-kind.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import type { RpcError } from "../errors/rpc-error.ts";
import type { Session } from "../session/session.ts";
import { builtin } from "../wire/builtin.ts";
import { errorWord, packError } from "../wire/fault.ts";
import { askInCall } from "./ask-in-call.ts";
import { streamError } from "./stream-error.ts";

/** Chunks that an open stream holds at the handler's side: one is read or filled while the other is on its way. */
export const openBuffers = 2;

/**
 * The stream that a handler opens, checked and marked as open. How long its chunks are is the caller's word, so what they take here is bounded with
 * the bodies that peers make this engine hold (`limits.maxPullBytes`), until the call has been answered.
 *
 * @throws TypeError for what is no stream of that direction; RpcError `permission_denied` for another call's, `failed_precondition` for one that is
 * open already, `resource_exhausted`, or what the call has ended with.
 */
export function openStream(
  stream: unknown,
  direction: StreamDirection,
  call: IncomingCall,
  session: Session,
): RemoteStream {
  if (!(stream instanceof RemoteStream) || stream.direction !== direction) {
    const name = direction === "read" ? "readable" : "writable";
    throw new TypeError(
      `${name}: the argument must be a byte stream for "${direction}" that came with this call's input`,
    );
  }
  if (stream.call !== call)
    throw streamError("permission_denied", "the byte stream came with another call, and ends with it");
  if (stream.opened) throw streamError("failed_precondition", "the byte stream has been opened already");
  // What is taken now is given back when the call is answered, which must be still to come.
  call.assertOpen();
  const { pullBudget, limits } = session.host;
  const bytes = openBuffers * stream.descriptor.chunkBytes;
  // Unlike a body, a stream has no other bound: it gets no more than there is, though nothing else be held.
  if (bytes > limits.maxPullBytes || !pullBudget.take(bytes)) {
    throw streamError(
      "resource_exhausted",
      `the byte stream needs ${bytes} bytes here, but maxPullBytes ${limits.maxPullBytes} is reached`,
    );
  }
  const { onAnswered } = call;
  call.onAnswered = () => {
    onAnswered?.();
    pullBudget.give(bytes);
  };
  stream.opened = true;
  return stream;
}

/** Tells the caller that this side gives its stream up. That nobody hears it changes nothing. */
export function tellStopped(
  call: IncomingCall,
  session: Session,
  stream: RemoteStream,
  error: RpcError,
): void {
  if (!call.open) return;
  askInCall(call, session, builtin.stop, [
    stream.descriptor.stream,
    errorWord(error),
    { m: packError(error).m },
  ]).catch(() => {});
}
