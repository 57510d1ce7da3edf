import type { Counters } from "../../base/observe/counters.ts";
import { type NotOpened, notOpened } from "../../security/sealing/message-opener.ts";
import { looksSealed, looksUnnumbered, sealedTagBytes } from "../../security/sealing/sealed-message.ts";
import type { SessionCiphers } from "../../security/sealing/session-ciphers.ts";
import { frameHeaderBytes, isKeepalive } from "../../wire/frame.ts";
import {
  messageFault,
  messageHeaderBytes,
  mostNumber,
  numberOffset,
  sealedMagic,
  unnumbered,
} from "../../wire/message.ts";
import type { Deferred, MessageTurns, TurnTaker } from "./message-turns.ts";

const half = 2 ** 31;
const keepaliveBytes = messageHeaderBytes + frameHeaderBytes;

/** So many messages that do not open end their session. So guessing the tag within that number is almost impossible. */
const mostForgeries = 2 ** 20;

/** The session of an inbox. */
export interface Receiver extends TurnTaker {
  readonly services: { readonly counters: Counters };
  /** Takes a message after `lost` missing messages. `lost` 0: its number is a fault. */
  receiveOutOfOrder(offset: number, bytes: number, lost: number): void;
  /**
   * Takes a refusal in the clear, if one may come though the session has keys. False: the message is not such a
   * refusal.
   */
  takeClearRefusal(offset: number, bytes: number): boolean;
  fault(text: string): void;
  /** `count` messages did not open. */
  onForgeries(count: number): void;
}

/**
 * The messages that arrive for one session, sealed or not, in the order of their numbers. A connection of the provider
 * may break while both sides live. The provider connects again by itself and does not report what it lost. A gap in the
 * numbers shows a loss.
 *
 * The network path sees index and nonce of a sealed session. So nothing in a sealed message is trusted before it has
 * opened. A message that does not open is counted and has no other effect.
 */
export class Inbox implements Deferred {
  readonly session: Receiver;
  readonly deferred: Uint8Array[] = [];
  next = 0;
  deferredFrames = 0;
  deferredBytes = 0;
  turn = 0;
  framesInTurn = 0;
  /** The number of the next message in the clear. */
  #number = 1;
  #ciphers: SessionCiphers | undefined;
  #forged = 0;

  constructor(session: Receiver) {
    this.session = session;
  }

  /** Later messages are sealed. */
  seal(ciphers: SessionCiphers): void {
    this.#ciphers = ciphers;
  }

  /** The peer restarts its numbers. */
  restart(): void {
    this.#number = 1;
  }

  /** Takes a message with a header that names the session. `isAlone`: the engine has no other session. */
  receive(offset: number, bytes: number, turns: MessageTurns, isAlone: boolean): void {
    const { session } = this;
    const view = session.port.slabView;
    let clearBytes = bytes;
    if (this.#ciphers !== undefined) {
      clearBytes = this.#open(this.#ciphers, offset, bytes, turns);
      if (clearBytes === 0) return;
    } else {
      // Only the peer knows index and nonce. So the message comes from it, or was damaged on the way. In both cases the
      // session cannot continue.
      const fault = messageFault(view, offset, bytes);
      if (fault !== "") return session.fault(fault);
      const number = view.getUint32(offset + numberOffset, true);
      if (number === this.#number) this.#number = (number % mostNumber) + 1;
      else if (!isUnnumberedKeepalive(view, offset, bytes, number)) {
        turns.finish(this);
        const ahead = number === unnumbered ? 0 : (number - this.#number) >>> 0;
        return session.receiveOutOfOrder(offset, bytes, ahead < half ? ahead : 0);
      }
    }
    // Messages of the only session are not deferred.
    if (isAlone && this.deferred.length === 0) session.receive(offset, clearBytes);
    else turns.take(this, offset, clearBytes, view.getUint16(offset + 2, true));
  }

  /** Opens a sealed message. Returns its length in the clear. 0: no message to take. */
  #open(ciphers: SessionCiphers, offset: number, bytes: number, turns: MessageTurns): number {
    const { session } = this;
    const { port } = session;
    const view = port.slabView;
    if (!looksSealed(view, offset, bytes) && session.takeClearRefusal(offset, bytes)) return 0;
    if (looksUnnumbered(view, offset)) return this.#openKeepalive(ciphers, offset, bytes);
    const lost = ciphers.opener.open(port, offset, bytes);
    if (lost < 0) return this.#drop(lost as NotOpened);
    const fault = messageFault(view, offset, bytes, sealedMagic);
    if (fault !== "") {
      session.fault(fault);
      return 0;
    }
    const clearBytes = bytes - sealedTagBytes;
    if (lost === 0) return clearBytes;
    turns.finish(this);
    session.receiveOutOfOrder(offset, clearBytes, lost);
    return 0;
  }

  #openKeepalive(ciphers: SessionCiphers, offset: number, bytes: number): number {
    const { session } = this;
    const { port } = session;
    if (!ciphers.guard.opener.open(port, offset, bytes)) {
      session.services.counters.keepalivesRefused++;
      return 0;
    }
    const view = port.slabView;
    if (view.getUint16(offset + 2, true) === 1 && isKeepalive(view, offset + messageHeaderBytes))
      return keepaliveBytes;
    session.fault("a message without a number is no keepalive");
    return 0;
  }

  #drop(why: NotOpened): 0 {
    const { counters } = this.session.services;
    if (why === notOpened.repeated) counters.messagesRepeated++;
    else {
      counters.messagesForged++;
      if (++this.#forged >= mostForgeries) this.session.onForgeries(this.#forged);
    }
    return 0;
  }
}

/**
 * The guard does not know the number of messages that have left, so its keepalive has no number. Losing it is harmless.
 */
function isUnnumberedKeepalive(view: DataView, offset: number, bytes: number, number: number): boolean {
  return number === unnumbered && bytes === keepaliveBytes && isKeepalive(view, offset + messageHeaderBytes);
}
