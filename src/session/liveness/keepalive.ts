import type { Vouch } from "../../fabric/port.ts";
import {
  keepaliveClearBytes,
  sealedKeepaliveBytes,
  writeSealedHeader,
} from "../../security/sealing/sealed-message.ts";
import type { SessionCiphers } from "../../security/sealing/session-ciphers.ts";
import { frameHeaderBytes, frameKind, senderState, writeHead } from "../../wire/frame.ts";
import type { Greeting } from "../../wire/handshake.ts";
import {
  messageHeaderBytes,
  messageMark,
  Nonce,
  unnumbered,
  writeMessageHeader,
} from "../../wire/message.ts";

/** The number of keepalives within a peer's heartbeat. The peer looks every quarter, and is to find one each time. */
const perHeartbeat = 8;
const leastMs = 10;

/** The session of a keepalive. */
interface KeptAlive {
  /** The nonce in the peer's messages to this side. */
  readonly nonce: Nonce;
  readonly ciphers?: SessionCiphers | undefined;
}

/**
 * The message that the port sends for this thread to the peer with this greeting: a pong, as if the peer had asked. For
 * a sealed session the port seals each one anew.
 */
export function keepalive({ nonce, ciphers }: KeptAlive, peer: Greeting, forMs: number): Vouch {
  const sealed = ciphers !== undefined;
  const message = new Uint8Array(sealed ? sealedKeepaliveBytes : messageHeaderBytes + frameHeaderBytes);
  const view = new DataView(message.buffer);
  const write = sealed ? writeSealedHeader : writeMessageHeader;
  write(view, 0, 1, message.byteLength, peer.session, new Nonce(peer.nonce), unnumbered);
  const frameAt = sealed ? keepaliveClearBytes : messageHeaderBytes;
  writeHead(view, frameAt, { kind: frameKind.pong, method: senderState.busy, callId: 0, word: 0 }, 0, 0);
  return {
    mark: messageMark(nonce),
    message,
    everyMs: Math.max(leastMs, Math.floor(peer.heartbeatMs / perHeartbeat)),
    forMs,
    seal: ciphers?.guard.sealing,
  };
}
