import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { Counters } from "../../base/observe/counters.ts";
import type { Port } from "../../fabric/port.ts";
import { type NotOpened, notOpened } from "../../security/sealing/message-opener.ts";
import { looksUnnumbered, sealedTagBytes } from "../../security/sealing/sealed-message.ts";
import type { SessionCiphers } from "../../security/sealing/session-ciphers.ts";
import { frameHeaderBytes } from "../../wire/frame.ts";
import {
  messageFault,
  messageHeaderBytes,
  numberAfter,
  numberOffset,
  sealedMagic,
  unnumbered,
} from "../../wire/message.ts";
import { forgeries } from "../opening/end-reasons.ts";
import { isKeepalive } from "./keepalive.ts";
import type { MessageTurns, TurnTaker } from "./message-turns.ts";

const half = 2 ** 31;
const keepaliveBytes = messageHeaderBytes + frameHeaderBytes;

/**
 * Which message of the peer comes next. A connection of the provider may break while both sides live. The provider
 * connects again by itself and does not tell what it lost, neither the sender nor the receiver: a gap in the numbers
 * tells.
 */
export class Arrivals {
  #next = 1;

  /** Takes the number of a message whose header has been checked. False: it is not the one that follows. */
  take(view: DataView, offset: number, bytes: number): boolean {
    const number = view.getUint32(offset + numberOffset, true);
    if (number === this.#next) {
      this.#next = numberAfter(number);
      return true;
    }
    // The guard cannot know how many messages have left, so that its word has no number. It may be lost without harm.
    return (
      number === unnumbered && bytes === keepaliveBytes && isKeepalive(view, offset + messageHeaderBytes)
    );
  }

  /** The peer begins to count anew. */
  restart(): void {
    this.#next = 1;
  }

  /** How many messages must have been lost before the one that `take` has refused. 0: its number is a fault. */
  missing(view: DataView, offset: number): number {
    const number = view.getUint32(offset + numberOffset, true);
    if (number === unnumbered) return 0;
    const ahead = (number - this.#next) >>> 0;
    return ahead < half ? ahead : 0;
  }
}

/** This many messages that do not open end their session. So few guesses of a tag are almost certainly wrong. */
const mostForgeries = 2 ** 20;

/** A session whose messages are sealed. */
interface SealedSession extends TurnTaker {
  readonly port: Port;
  readonly peerName: string;
  readonly services: { readonly counters: Counters };
  receiveOutOfOrder(offset: number, bytes: number, lost: number): void;
  fault(text: string): void;
  end(reason: RpcError): void;
}

/**
 * The messages that arrive for a sealed session. The network path sees its index and nonce, so nothing in a message is
 * believed before it has opened. A message that does not open is counted and has no other effect.
 */
export class SealedArrivals {
  readonly #session: SealedSession;
  readonly #ciphers: SessionCiphers;
  #forged = 0;

  constructor(session: SealedSession, ciphers: SessionCiphers) {
    this.#session = session;
    this.#ciphers = ciphers;
  }

  /** Takes a message whose header names the session. `alone`: the engine has no other. */
  receive(offset: number, bytes: number, turns: MessageTurns, alone: boolean): void {
    const session = this.#session;
    const { port } = session;
    const view = port.slabView;
    if (looksUnnumbered(view, offset)) return this.#keepalive(offset, bytes, turns, alone);
    const lost = this.#ciphers.opener.open(port, offset, bytes);
    if (lost < 0) return this.#drop(lost as NotOpened);
    const fault = messageFault(view, offset, bytes, sealedMagic);
    if (fault !== "") return session.fault(fault);
    const openBytes = bytes - sealedTagBytes;
    if (lost === 0) return turns.take(session, alone, offset, openBytes, view.getUint16(offset + 2, true));
    turns.finish(session);
    session.receiveOutOfOrder(offset, openBytes, lost);
  }

  #keepalive(offset: number, bytes: number, turns: MessageTurns, alone: boolean): void {
    const { port } = this.#session;
    if (!this.#ciphers.guard.opener.open(port, offset, bytes)) {
      this.#session.services.counters.keepalivesRefused++;
      return;
    }
    const view = port.slabView;
    if (view.getUint16(offset + 2, true) !== 1 || !isKeepalive(view, offset + messageHeaderBytes))
      return this.#session.fault("a message without a number is no keepalive");
    turns.take(this.#session, alone, offset, keepaliveBytes, 1);
  }

  #drop(why: NotOpened): void {
    const { counters } = this.#session.services;
    if (why === notOpened.repeated) {
      counters.messagesRepeated++;
      return;
    }
    counters.messagesForged++;
    if (++this.#forged >= mostForgeries) this.#session.end(forgeries(this.#session.peerName, this.#forged));
  }
}
