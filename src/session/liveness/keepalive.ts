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

/**
 * So often within a peer's heartbeat it is told that we live: it looks every quarter, and is to find something each
 * time.
 */
const perHeartbeat = 8;
const leastMs = 10;

/** What a session is to its keepalive. */
interface KeptAlive {
  /** What the peer's messages to this side carry. */
  readonly nonce: Nonce;
  readonly ciphers?: SessionCiphers | undefined;
}

/**
 * What the port says in place of this thread to the peer that greeted it so: a pong, as if it had been asked. Where the session is
 * sealed the port seals it, each time anew.
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
