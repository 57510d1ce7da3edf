import type { Counters } from "../../base/observe/counters.ts";
import { type NotOpened, notOpened } from "../../security/sealing/message-opener.ts";
import { looksSealed, looksUnnumbered, sealedTagBytes } from "../../security/sealing/sealed-message.ts";
import type { SessionCiphers } from "../../security/sealing/session-ciphers.ts";
import { frameHeaderBytes, isKeepalive } from "../../wire/frame.ts";
import {
  messageFault,
  messageHeaderBytes,
  numberAfter,
  numberOffset,
  sealedMagic,
  unnumbered,
} from "../../wire/message.ts";
import type { Deferred, MessageTurns, TurnTaker } from "./message-turns.ts";

const half = 2 ** 31;
const keepaliveBytes = messageHeaderBytes + frameHeaderBytes;

/** This many messages that do not open end their session. So few guesses of a tag are almost certainly wrong. */
const mostForgeries = 2 ** 20;

/** The session that an inbox is of. */
export interface Receiver extends TurnTaker {
  readonly services: { readonly counters: Counters };
  /** Takes a message before which `lost` others were lost; 0: its number is a fault. */
  receiveOutOfOrder(offset: number, bytes: number, lost: number): void;
  /** Takes a refusal in the clear, where one may come though the session has keys. False: the message is no such. */
  takeClearRefusal(offset: number, bytes: number): boolean;
  fault(text: string): void;
  /** So many messages did not open. */
  onForgeries(count: number): void;
}

/**
 * The messages that arrive for one session, sealed or not, in the order of their numbers. A connection of the provider
 * may break while both sides live. The provider connects again by itself and tells neither side what it lost: a gap in
 * the numbers tells.
 *
 * The network path sees index and nonce of a sealed session. So nothing in a sealed message is believed before it has
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

  /** Messages are sealed from now on. */
  seal(ciphers: SessionCiphers): void {
    this.#ciphers = ciphers;
  }

  /** The peer begins to count anew. */
  restart(): void {
    this.#number = 1;
  }

  /** Takes a message whose header names the session. `alone`: the engine has no other. */
  receive(offset: number, bytes: number, turns: MessageTurns, alone: boolean): void {
    const { session } = this;
    const view = session.port.slabView;
    if (this.#ciphers !== undefined) return this.#open(this.#ciphers, offset, bytes, turns, alone);
    // Index and nonce are known to one peer only: the message is its, or was damaged on the way. Either way no session
    // can go on.
    const fault = messageFault(view, offset, bytes);
    if (fault !== "") return session.fault(fault);
    const number = view.getUint32(offset + numberOffset, true);
    if (number === this.#number) this.#number = numberAfter(number);
    else if (!isUnnumberedKeepalive(view, offset, bytes, number)) {
      turns.finish(this);
      const ahead = number === unnumbered ? 0 : (number - this.#number) >>> 0;
      return session.receiveOutOfOrder(offset, bytes, ahead < half ? ahead : 0);
    }
    turns.take(this, alone, offset, bytes, view.getUint16(offset + 2, true));
  }

  #open(ciphers: SessionCiphers, offset: number, bytes: number, turns: MessageTurns, alone: boolean): void {
    const { session } = this;
    const { port } = session;
    const view = port.slabView;
    const isSealed = looksSealed(view, offset, bytes);
    if (!isSealed && session.takeClearRefusal(offset, bytes)) return;
    if (looksUnnumbered(view, offset)) return this.#openKeepalive(ciphers, offset, bytes, turns, alone);
    const lost = ciphers.opener.open(port, offset, bytes);
    if (lost < 0) return this.#drop(lost as NotOpened);
    const fault = messageFault(view, offset, bytes, sealedMagic);
    if (fault !== "") return session.fault(fault);
    const openBytes = bytes - sealedTagBytes;
    if (lost === 0) return turns.take(this, alone, offset, openBytes, view.getUint16(offset + 2, true));
    turns.finish(this);
    session.receiveOutOfOrder(offset, openBytes, lost);
  }

  #openKeepalive(
    ciphers: SessionCiphers,
    offset: number,
    bytes: number,
    turns: MessageTurns,
    alone: boolean,
  ): void {
    const { session } = this;
    const { port } = session;
    if (!ciphers.guard.opener.open(port, offset, bytes)) {
      session.services.counters.keepalivesRefused++;
      return;
    }
    const view = port.slabView;
    if (view.getUint16(offset + 2, true) !== 1 || !isKeepalive(view, offset + messageHeaderBytes))
      return session.fault("a message without a number is no keepalive");
    turns.take(this, alone, offset, keepaliveBytes, 1);
  }

  #drop(why: NotOpened): void {
    const { counters } = this.session.services;
    if (why === notOpened.repeated) {
      counters.messagesRepeated++;
      return;
    }
    counters.messagesForged++;
    if (++this.#forged >= mostForgeries) this.session.onForgeries(this.#forged);
  }
}

/** The guard cannot know how many messages have left, so that its word has no number. It may be lost without harm. */
function isUnnumberedKeepalive(view: DataView, offset: number, bytes: number, number: number): boolean {
  return number === unnumbered && bytes === keepaliveBytes && isKeepalive(view, offset + messageHeaderBytes);
}
