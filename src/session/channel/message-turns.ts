import type { PeerAccount } from "../../base/flow/peer-account.ts";
import { realTimers } from "../../base/time/real-timers.ts";
import type { Port } from "../../fabric/port.ts";

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

/** A session that takes turns. */
export interface TurnTaker {
  readonly port: Pick<Port, "slab" | "slabView" | "takeSlot" | "returnSlot">;
  readonly account: PeerAccount;
  /** The number of open calls, streams included. */
  readonly openWork: number;
  heardMs: number;
  readonly nowMs: number;
  /** Takes a message apart. */
  receive(offset: number, bytes: number): void;
  /** The peer sends more than it is entitled to. */
  onFlood(frames: number): void;
}

/** The messages of one session beyond its turn: its inbox. */
export interface Deferred {
  readonly session: TurnTaker;
  /** Copies of messages, oldest first. Messages before `next` have been taken. */
  readonly deferred: Uint8Array[];
  next: number;
  deferredFrames: number;
  deferredBytes: number;
  /** The number of frames that the session delivered in the turn `turn`. */
  turn: number;
  framesInTurn: number;
}

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
  #waiting: Deferred[] = [];
  readonly #mostFrames: number;

  /** `maxRequests`: the most requests that one peer may have in flight. */
  constructor(maxRequests: number) {
    this.#mostFrames = mostFrames + 4 * maxRequests;
  }

  /** Takes a message of `frames` frames apart: now, or when its session has a turn again. */
  take(inbox: Deferred, offset: number, bytes: number, frames: number): void {
    if (inbox.turn !== this.#turn) {
      inbox.turn = this.#turn;
      inbox.framesInTurn = 0;
    }
    inbox.framesInTurn += frames;
    this.#inTurn += frames;
    const most = this.#inTurn < lateTurn ? framesInTurn : framesInLateTurn;
    const fits = inbox.framesInTurn <= most || inbox.framesInTurn === frames;
    if (fits && inbox.deferred.length === 0) inbox.session.receive(offset, bytes);
    else this.#defer(inbox, offset, bytes, frames);
  }

  #defer(inbox: Deferred, offset: number, bytes: number, frames: number): void {
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
  finish(inbox: Deferred): void {
    while (inbox.deferred.length > 0 && this.#next(inbox));
  }

  /** The session has ended. */
  drop(inbox: Deferred): void {
    inbox.session.account.pulls.give(inbox.deferredBytes);
    inbox.deferred.length = 0;
    inbox.next = 0;
    inbox.deferredFrames = 0;
    inbox.deferredBytes = 0;
  }

  /** Takes one message. False without a slot for it: sessions read messages in the port's slab. */
  #next(inbox: Deferred): boolean {
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
