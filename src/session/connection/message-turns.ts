import type { PeerAccount } from "../../base/flow/peer-account.ts";
import { realTimers } from "../../base/time/real-timers.ts";

/**
 * How many frames of one session are taken in a turn before those of others; and how many once that many were taken.
 */
const framesInTurn = 512;
const framesInLateTurn = 64;
const lateTurn = 4096;
/** How long put-off messages are taken apart in one turn, in milliseconds. Others have waited so long at most. */
const putOffMs = 2;
/** What a copy of a message takes beside its bytes. A message may be as short as one frame. */
const copyBytes = 256;
/** A peer that is honest has no more frames on the way than its calls and answers need, and the items of streams. */
const mostFrames = 65_536;
const mostItemsOfCall = 4096;

/** What one session has sent beyond its turn. */
export class PutOff {
  /** Copies of messages, oldest first; those before `next` have been taken. */
  readonly messages: Uint8Array[] = [];
  next = 0;
  frames = 0;
  bytes = 0;
  /** The frames that it has had in this turn. */
  turn = 0;
  inTurn = 0;
}

/** The slab that messages are read in. */
interface Slab {
  readonly slab: Uint8Array;
  readonly slabView: DataView;
  takeSlot(): number;
  returnSlot(offset: number): void;
}

/** A session as it takes turns. */
export interface TurnTaker {
  readonly port: Slab;
  readonly account: PeerAccount;
  readonly putOff: PutOff;
  /** Open calls, streams among them. */
  readonly openWork: number;
  heardMs: number;
  readonly nowMs: number;
  receive(offset: number, bytes: number): void;
  /** The peer sends more than it is entitled to. */
  onFlood(frames: number): void;
}

/**
 * Lets sessions take turns. Messages are taken apart as they arrive, until one session has had its part of the turn:
 * what else it has sent is copied, and taken after the messages of all others. So a peer that sends more than this side
 * can take delays itself, and a message of another waits for a few milliseconds at most. The copies are bytes on their
 * way in: they count against the peer's share of `maxPullBytes`. A session alone is never put off.
 */
export class MessageTurns {
  #turn = 1;
  #inTurn = 0;
  /** Sessions with messages that were put off, in turn. */
  #waiting: TurnTaker[] = [];
  readonly #mostFrames: number;

  /** `maxRequests`: requests that one peer may have in flight. */
  constructor(maxRequests: number) {
    this.#mostFrames = mostFrames + 4 * maxRequests;
  }

  /** Takes a message of `frames` frames apart: now, or when its session has a turn again. */
  take(session: TurnTaker, alone: boolean, offset: number, bytes: number, frames: number): void {
    const { putOff } = session;
    if (putOff.turn !== this.#turn) {
      putOff.turn = this.#turn;
      putOff.inTurn = 0;
    }
    putOff.inTurn += frames;
    this.#inTurn += frames;
    const most = this.#inTurn < lateTurn ? framesInTurn : framesInLateTurn;
    if (putOff.messages.length === 0 && (alone || putOff.inTurn <= most || putOff.inTurn === frames))
      session.receive(offset, bytes);
    else this.#putOff(session, offset, bytes, frames);
  }

  #putOff(session: TurnTaker, offset: number, bytes: number, frames: number): void {
    const { putOff, account, port } = session;
    const most = this.#mostFrames + mostItemsOfCall * session.openWork;
    if (putOff.frames + frames > most || !account.pulls.take(bytes + copyBytes))
      return session.onFlood(putOff.frames + frames);
    if (putOff.messages.length === 0) this.#waiting.push(session);
    session.heardMs = session.nowMs;
    putOff.messages.push(Uint8Array.prototype.slice.call(port.slab, offset, offset + bytes));
    putOff.frames += frames;
    putOff.bytes += bytes + copyBytes;
  }

  /**
   * All that has arrived in this turn has been delivered: sessions with messages that were put off take turns, one
   * message each, for a while. True when some are left that can go on.
   */
  endTurn(): boolean {
    this.#turn++;
    this.#inTurn = 0;
    if (this.#waiting.length === 0) return false;
    const untilMs = realTimers.now() + putOffMs;
    for (let session = this.#waiting.shift(); session !== undefined; session = this.#waiting.shift()) {
      const took = this.#next(session);
      if (session.putOff.messages.length > 0) this.#waiting.push(session);
      // A send slot that comes back brings the next turn.
      if (!took) return false;
      if (realTimers.now() >= untilMs) break;
    }
    return this.#waiting.length > 0;
  }

  /** Takes all that a session was put off with: its peer is gone, and what it has said before counts. */
  finish(session: TurnTaker): void {
    while (session.putOff.messages.length > 0 && this.#next(session));
  }

  /** The session has ended. */
  drop(session: TurnTaker): void {
    const { putOff, account } = session;
    account.pulls.give(putOff.bytes);
    putOff.messages.length = 0;
    putOff.next = 0;
    putOff.frames = 0;
    putOff.bytes = 0;
  }

  /** Takes one message. False when there is no place for it: sessions read messages in the port's slab. */
  #next(session: TurnTaker): boolean {
    const { putOff, port, account } = session;
    if (putOff.messages.length === 0) return true;
    const slot = port.takeSlot();
    if (slot < 0) return false;
    const message = putOff.messages[putOff.next++] as Uint8Array;
    port.slab.set(message, slot);
    putOff.frames -= port.slabView.getUint16(slot + 2, true);
    putOff.bytes -= message.byteLength + copyBytes;
    account.pulls.give(message.byteLength + copyBytes);
    putOff.messages[putOff.next - 1] = taken;
    if (putOff.next === putOff.messages.length) {
      putOff.messages.length = 0;
      putOff.next = 0;
    }
    session.receive(slot, message.byteLength);
    port.returnSlot(slot);
    return true;
  }
}

const taken = new Uint8Array(0);
