import type { Port } from "../../fabric/port.ts";
import type { Identity } from "../../security/identity.ts";
import type { SessionCiphers } from "../../security/sealing/session-ciphers.ts";
import type { CertificateChain } from "../../security/trust.ts";
import type { ReturnPath } from "../../wire/handshake.ts";
import type { Nonce } from "../../wire/message.ts";

/** A TLS handshake with one peer, before there is a session. Both sides send in the clear. */
export interface SealedOpening {
  readonly port: Port;
  readonly address: number;
  /** What messages to this side carry: of the handshake, and of the session that it leads to. */
  readonly index: number;
  readonly nonce: Nonce;
  /** Takes a message that carries them. Never throws. */
  receive(offset: number, bytes: number): void;
  /** The connection with the peer has ended. */
  onDisconnected(): void;
}

/** What a handshake has led to. */
export interface Sealed {
  readonly opening: SealedOpening;
  /** Where the peer is. */
  readonly path: ReturnPath;
  readonly identity: Identity;
  /** What the identity was proven by; empty with a pre-shared key. */
  readonly chain: CertificateChain;
  /** Of the new session, which closes them. */
  readonly ciphers: SessionCiphers;
}

/** The longest that the messages of one handshake may be together, in bytes, in each direction. */
export const maxHandshakeBytes = 65_536;
