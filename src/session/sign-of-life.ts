import type { Vouch } from "../fabric/port.ts";
import { frameHeaderBytes, frameKind, senderState, writeFrameHeader } from "../wire/frame.ts";
import type { Greeting } from "../wire/handshake.ts";
import { messageHeaderBytes, messageMark, writeMessageHeader } from "../wire/message.ts";

/** So often within a peer's heartbeat it is told that we live: it looks every quarter, and is to find something each time. */
const perHeartbeat = 8;
const leastMs = 10;

/** What the port says in our stead to the peer that greeted us so: a pong, as if it had been asked. `ours` is what its messages to us carry. */
export function signOfLife(
  ours: { readonly index: number; readonly nonce: number },
  peer: Greeting,
  forMs: number,
): Vouch {
  const message = new Uint8Array(messageHeaderBytes + frameHeaderBytes);
  const view = new DataView(message.buffer);
  writeMessageHeader(view, 0, 1, message.byteLength, peer.session, peer.nonce);
  writeFrameHeader(view, messageHeaderBytes, frameKind.pong, 0, senderState.busy, 0, 0, 0);
  return {
    mark: messageMark(ours.index, ours.nonce),
    message,
    everyMs: Math.max(leastMs, Math.floor(peer.heartbeatMs / perHeartbeat)),
    forMs,
  };
}
