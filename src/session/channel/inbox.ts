import type { PeerAccount } from "../../base/flow/peer-account.ts";
import type { Counters } from "../../base/observe/counters.ts";
import { realTimers } from "../../base/time/real-timers.ts";
import type { Port } from "../../fabric/port.ts";
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

const half = 2 ** 31;
const keepaliveBytes = messageHeaderBytes + frameHeaderBytes;

/** So many messages that do not open end their session. So guessing the tag within that number is almost impossible. */
const mostForgeries = 2 ** 20;

/** The session of an inbox. */
export interface Receiver {
  readonly port: Pick<Port, "slab" | "slabView" | "takeSlot" | "returnSlot">;
  readonly account: PeerAccount;
  readonly services: { readonly counters: Counters };
  /** The number of open calls, streams included. */
  readonly openWork: number;
  heardMs: number;
  readonly nowMs: number;
  /** Takes a message apart. */
  receive(offset: number, bytes: number): void;
  /** Takes a message after `lost` missing messages. `lost` 0: its number is a fault. */
  receiveOutOfOrder(offset: number, bytes: number, lost: number): void;
  /**
   * Takes a refusal in the clear, if one may come though the session has keys. False: the message is not such a
   * refusal.
   */
  takeClearRefusal(offset: number, bytes: number): boolean;
  fault(text: string): void;
  /** The peer sends more than it is entitled to. */
  onFlood(frames: number): void;
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
export class Inbox {
  readonly session: Receiver;
  // The messages beyond the session's turn. Only the turns set these fields.
  /** Copies of messages, oldest first. Messages before `next` have been taken. */
  readonly deferred: Uint8Array[] = [];
  next = 0;
  deferredFrames = 0;
  deferredBytes = 0;
  /** The number of frames that the session delivered in the turn `turn`. */
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

  /**
   * Checks a message with a header that names the session, and opens it if it is sealed. Returns its length in the
   * clear. 0: there is no message to take.
   */
  open(offset: number, bytes: number, turns: MessageTurns): number {
    if (this.#ciphers !== undefined) return this.#openSealed(this.#ciphers, offset, bytes, turns);
    const { session } = this;
    const view = session.port.slabView;
    // Only the peer knows index and nonce. So the message comes from it, or was damaged on the way. In both cases the
    // session cannot continue.
    const fault = messageFault(view, offset, bytes);
    if (fault !== "") {
      session.fault(fault);
      return 0;
    }
    const number = view.getUint32(offset + numberOffset, true);
    if (number === this.#number) this.#number = (number % mostNumber) + 1;
    else if (!isUnnumberedKeepalive(view, offset, bytes, number)) {
      turns.finish(this);
      const ahead = number === unnumbered ? 0 : (number - this.#number) >>> 0;
      session.receiveOutOfOrder(offset, bytes, ahead < half ? ahead : 0);
      return 0;
    }
    return bytes;
  }

  #openSealed(ciphers: SessionCiphers, offset: number, bytes: number, turns: MessageTurns): number {
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

/**
 * The frames of one session that are taken in a turn before those of others. The lower number holds after `lateTurn`
 * frames in the turn.
 */
const framesInTurn = 512;
const framesInLateTurn = 64;
const lateTurn = 4096;
/** The time for deferred messages in one turn, in milliseconds. Other messages wait at most so long. */
const deferredMs = 2;
/** The memory of a message's copy beside its bytes. A message may be as short as one frame. */
const copyBytes = 256;
/** The most frames of an honest peer on their way: those of its calls, its answers, and the items of streams. */
const mostFrames = 65_536;
const mostItemsOfCall = 4096;

/**
 * Lets sessions take turns. Messages are taken apart as they arrive, until one session has used up its part of the
 * turn. Its further messages are copied, and taken after the messages of all other sessions. So a peer that sends too
 * much delays itself. A message of another peer waits for a few milliseconds at most. The copies count as incoming
 * bytes in the peer's share of `maxPullBytes`. Messages of the only session are not deferred.
 */
export class MessageTurns {
  #turn = 1;
  #inTurn = 0;
  /** Inboxes of sessions with deferred messages, in turn. */
  #waiting: Inbox[] = [];
  readonly #mostFrames: number;

  /** `maxRequests`: the most requests that one peer may have in flight. */
  constructor(maxRequests: number) {
    this.#mostFrames = mostFrames + 4 * maxRequests;
  }

  /** Whether the session takes a message now. Otherwise a copy waits until the session has a turn again. */
  admits(inbox: Inbox, offset: number, bytes: number): boolean {
    const frames = inbox.session.port.slabView.getUint16(offset + 2, true);
    if (inbox.turn !== this.#turn) {
      inbox.turn = this.#turn;
      inbox.framesInTurn = 0;
    }
    inbox.framesInTurn += frames;
    this.#inTurn += frames;
    const most = this.#inTurn < lateTurn ? framesInTurn : framesInLateTurn;
    const fits = inbox.framesInTurn <= most || inbox.framesInTurn === frames;
    if (fits && inbox.deferred.length === 0) return true;
    this.#defer(inbox, offset, bytes, frames);
    return false;
  }

  #defer(inbox: Inbox, offset: number, bytes: number, frames: number): void {
    const { session } = inbox;
    const most = this.#mostFrames + mostItemsOfCall * session.openWork;
    if (inbox.deferredFrames + frames > most || !session.account.pulls.take(bytes + copyBytes))
      return session.onFlood(inbox.deferredFrames + frames);
    if (inbox.deferred.length === 0) this.#waiting.push(inbox);
    session.heardMs = session.nowMs;
    inbox.deferred.push(Uint8Array.prototype.slice.call(session.port.slab, offset, offset + bytes));
    inbox.deferredFrames += frames;
    inbox.deferredBytes += bytes + copyBytes;
  }

  /**
   * Called when all messages of this turn have been delivered. Sessions with deferred messages take turns for a while,
   * one message each. True when sessions are left that can continue.
   */
  readonly endTurn = (): boolean => {
    this.#turn++;
    this.#inTurn = 0;
    if (this.#waiting.length === 0) return false;
    const untilMs = realTimers.now() + deferredMs;
    for (let inbox = this.#waiting.shift(); inbox !== undefined; inbox = this.#waiting.shift()) {
      const took = this.#next(inbox);
      if (inbox.deferred.length > 0) this.#waiting.push(inbox);
      // A returned send slot starts the next turn.
      if (!took) return false;
      if (realTimers.now() >= untilMs) break;
    }
    return this.#waiting.length > 0;
  };

  /** Takes all deferred messages of a session: its peer is gone, and its earlier messages still count. */
  finish(inbox: Inbox): void {
    while (inbox.deferred.length > 0 && this.#next(inbox));
  }

  /** The session has ended. */
  drop(inbox: Inbox): void {
    inbox.session.account.pulls.give(inbox.deferredBytes);
    inbox.deferred.length = 0;
    inbox.next = 0;
    inbox.deferredFrames = 0;
    inbox.deferredBytes = 0;
  }

  /** Takes one message. False without a slot for it: sessions read messages in the port's slab. */
  #next(inbox: Inbox): boolean {
    const { session, deferred } = inbox;
    const { port } = session;
    if (deferred.length === 0) return true;
    const slot = port.takeSlot();
    if (slot < 0) return false;
    const message = deferred[inbox.next] as Uint8Array;
    deferred[inbox.next++] = taken;
    port.slab.set(message, slot);
    inbox.deferredFrames -= port.slabView.getUint16(slot + 2, true);
    inbox.deferredBytes -= message.byteLength + copyBytes;
    session.account.pulls.give(message.byteLength + copyBytes);
    if (inbox.next === deferred.length) {
      deferred.length = 0;
      inbox.next = 0;
    }
    session.receive(slot, message.byteLength);
    port.returnSlot(slot);
    return true;
  }
}

const taken = new Uint8Array(0);
