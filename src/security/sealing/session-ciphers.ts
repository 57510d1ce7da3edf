import type { Aead } from "./aead.ts";
import { KeyChain } from "./key-schedule.ts";
import { KeepaliveOpener, MessageOpener } from "./message-opener.ts";
import { MessageSealer } from "./message-sealer.ts";
import { PieceOpener, PieceSealer } from "./sealed-pieces.ts";
import { keyBytes, type SuiteName } from "./suites.ts";

export type HandshakeRole = "connector" | "acceptor";

/** The ciphers of a port's guard, which sends while the thread computes. */
interface GuardCiphers {
  /** Seals this side's keepalives. `Port.vouch` takes ownership. */
  readonly sealing: Aead;
  /** Opens the peer's. */
  readonly opener: KeepaliveOpener;
}

/** All keys of one session, by purpose and direction. They follow from the secret that the handshake agreed on. */
export class SessionCiphers {
  readonly sealer: MessageSealer;
  readonly opener: MessageOpener;
  readonly pieceSealer: PieceSealer;
  readonly pieceOpener: PieceOpener;
  readonly guard: GuardCiphers;

  private constructor(chain: (by: HandshakeRole, purpose: string) => KeyChain, role: HandshakeRole) {
    const peer = role === "connector" ? "acceptor" : "connector";
    this.sealer = new MessageSealer(chain(role, ""));
    this.opener = new MessageOpener(chain(peer, ""));
    this.pieceSealer = new PieceSealer(chain(role, " bulk"));
    this.pieceOpener = new PieceOpener(chain(peer, " bulk"));
    const sealing = chain(role, " guard");
    this.guard = { sealing: sealing.next("seal"), opener: new KeepaliveOpener(chain(peer, " guard")) };
    sealing.close();
  }

  /**
   * The ciphers of the side in `role`. The secret, of 32 bytes, is filled with zeros.
   * @throws RpcError `unavailable` where nothing can be sealed on this machine.
   */
  static from(secret: Uint8Array, role: HandshakeRole, suite: SuiteName): SessionCiphers {
    if (secret.byteLength !== keyBytes)
      throw new RangeError(`the secret of a session has ${keyBytes} bytes, not ${secret.byteLength}`);
    try {
      return new SessionCiphers((by, purpose) => new KeyChain(suite, secret, labelOf(by, purpose)), role);
    } finally {
      secret.fill(0);
    }
  }

  /** Cleanses all keys: sealing and opening are over. */
  close(): void {
    this.sealer.close();
    this.opener.close();
    this.pieceSealer.close();
    this.pieceOpener.close();
    this.guard.sealing.close();
    this.guard.opener.close();
  }
}

/** `by`: the side that seals with the keys. */
function labelOf(by: HandshakeRole, purpose: string): string {
  return `cinnabar 1 ${by}${purpose}`;
}
