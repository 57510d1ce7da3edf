import { frameKind, senderState } from "../../wire/frame.ts";
import type { Outbox } from "../channel/outbox.ts";

/** The words of pings that ask for confirmation begin here. Lower ones are others' (`SessionPart.onEcho`). */
const leastConfirmationWord = 0x8000_0000;

/** How many words there are. The highest number of 32 bits has another use. */
const words = 0x7fff_ffff;

/**
 * The word of the pings of a side that drains: the echo says that the peer sends no more requests. The words of other
 * pings about the session lie below, down to `leastConfirmationWord`.
 */
export const drainWord = 0xffff_ffff;

/** A session as its pings see it. */
export interface PingingSession {
  readonly port: { readonly slabView: DataView };
  readonly outbox: Pick<Outbox, "framesLeft" | "bare" | "latest">;
  readonly services: {
    readonly gate: { readonly requests: boolean };
    readonly progress: { wake(): void };
  };
  /** The peer takes no new calls from now on. */
  onDraining(): void;
  /** The peer has answered a ping that had this word; 0 for those about the session itself. */
  onPong(word: number): void;
}

/**
 * What a session knows of its peer by pings and pongs. Each of them tells whether its sender takes calls. A pong has the
 * word of its ping.
 *
 * A pong also confirms what left before the ping. Messages have numbers: the next one that arrives shows the peer that
 * others were lost before it. What was said last has nothing behind it. If a while passes like that, the heartbeat sends
 * a ping behind it. Pings and pongs themselves need no confirmation: both sides would confirm each other's for ever.
 */
export class PeerState {
  /** It takes no new calls. */
  drains = false;
  /** It has answered a ping that said that this side drains: all requests that it sent before have arrived. */
  knowsThatWeDrain = false;
  /** The last message was sent by its port in its place: it lives, but its thread computes and has not answered. */
  busy = false;
  /** A ping of the message that is being taken apart wants an answer. */
  isAsked = false;
  readonly #session: PingingSession;
  #word = 0;
  /** How many of the frames that have left, and of those that wait to leave, are pings and pongs. */
  #states = 0;
  /** How many of the others are confirmed, and had left at the last look. Mod `words`. */
  #confirmed = 0;
  #seen = 0;

  constructor(session: PingingSession) {
    this.#session = session;
  }

  readonly frames = {
    [frameKind.ping]: (at: number): void => {
      this.#takeState(at);
      this.isAsked = true;
      this.#word = this.#session.port.slabView.getUint32(at + 12, true);
    },
    [frameKind.pong]: (at: number): void => {
      this.#takeState(at);
      if (this.busy) return;
      const word = this.#session.port.slabView.getUint32(at + 12, true);
      if (word === drainWord) this.knowsThatWeDrain = true;
      else if (word >= leastConfirmationWord) this.confirm(word);
      this.#session.onPong(word >= leastConfirmationWord ? 0 : word);
    },
  };

  /** A pong with this word says that the peer has taken all that was sent before. 0: a ping about the session. */
  ask(word: number): void {
    const ours = this.#session.services.gate.requests ? this.confirmationWord : drainWord;
    this.#say(frameKind.ping, word === 0 ? ours : word);
  }

  /** A message has been taken apart: all its pings have one answer, which has the word of the last. */
  answer(): void {
    this.isAsked = false;
    this.#say(frameKind.pong, this.#word);
  }

  /** Takes the state in a ping or a pong. Returns whether it is news that the peer drains. */
  onState(state: number): boolean {
    this.busy = state === senderState.busy;
    if (this.busy) return false;
    const isNews = state === senderState.draining && !this.drains;
    this.drains = state === senderState.draining;
    return isNews;
  }

  /** The word of a ping that leaves now. Its pong repeats it. */
  get confirmationWord(): number {
    return leastConfirmationWord + this.#left;
  }

  /** A pong has this word: the peer has what had left when the ping was sent. */
  confirm(word: number): void {
    this.#confirmed = word - leastConfirmationWord;
  }

  /** Called at intervals. True: nothing has left since the last call, and what had left before is not confirmed. */
  isUnconfirmed(): boolean {
    const left = this.#left;
    const isStill = this.#seen === left;
    this.#seen = left;
    return isStill && left !== this.#confirmed;
  }

  /** Frames that have left, pings and pongs aside. Mod `words`. */
  get #left(): number {
    return (this.#session.outbox.framesLeft + words - this.#states) % words;
  }

  #say(kind: number, word: number): void {
    const { outbox, services } = this.#session;
    const state = services.gate.requests ? senderState.serving : senderState.draining;
    const head = { kind, method: state, callId: 0, word };
    this.#states++;
    if (kind === frameKind.pong) outbox.latest(head);
    else outbox.bare(head);
    services.progress.wake();
  }

  #takeState(at: number): void {
    const { slabView } = this.#session.port;
    if (this.onState(slabView.getUint16(at + 2, true))) this.#session.onDraining();
  }
}
