import { frameKind, senderState } from "../../wire/frame.ts";
import type { WatchedSession } from "./watched-session.ts";

/** The first word of pings that ask for confirmation. Lower words belong to others (`SessionPart.onEcho`). */
const leastConfirmationWord = 0x8000_0000;

/** The number of such words. The highest number of 32 bits has another use. */
const words = 0x7fff_ffff;

/**
 * The word of the pings of a draining side: the echo confirms that the peer sends no more requests. The words of other
 * pings about the session are lower, down to `leastConfirmationWord`.
 */
const drainWord = 0xffff_ffff;

/**
 * A peer's state from pings and pongs. Each of them shows whether its sender takes calls. A pong has the word of its
 * ping.
 *
 * A pong also confirms the messages before the ping. Messages have numbers: the next message to arrive shows the peer
 * that earlier ones were lost. The last message has no successor. After a while without one, the heartbeat sends a ping
 * behind it. Pings and pongs themselves need no confirmation: both sides would confirm each other's forever.
 */
export class PingState {
  /** The peer takes no new calls. */
  drains = false;
  /** The peer has answered a ping that announced the drain: all its earlier requests have arrived. */
  knowsThatWeDrain = false;
  /** The last message came from the peer's port: the peer is alive, but its thread is busy and has not answered. */
  busy = false;
  /** A ping of the present message needs an answer. */
  isAsked = false;
  readonly #session: WatchedSession;
  #word = 0;
  /** The number of pings and pongs among the frames that have left or wait to leave. */
  #states = 0;
  /**
   * The number of confirmed frames without pings and pongs, and of those that had left at the last look. Mod `words`.
   */
  #confirmed = 0;
  #seen = 0;

  constructor(session: WatchedSession) {
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

  /** Sends a ping. Its pong confirms that the peer has taken all earlier frames. Word 0: a ping about the session. */
  ask(word: number): void {
    const ours = this.#session.services.gate.requests ? this.confirmationWord : drainWord;
    this.#say(frameKind.ping, word === 0 ? ours : word);
  }

  /** The message has been taken apart: all its pings have one answer, with the word of the last ping. */
  answer(): void {
    this.isAsked = false;
    this.#say(frameKind.pong, this.#word);
  }

  /** Takes the state in a ping or a pong. Returns true when it newly reports a drain. */
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

  /** A pong has this word: the peer has the frames that had left before the ping. */
  confirm(word: number): void {
    this.#confirmed = word - leastConfirmationWord;
  }

  /** Called at intervals. True: no frame has left since the last call, and earlier frames are not confirmed. */
  isUnconfirmed(): boolean {
    const left = this.#left;
    const isStill = this.#seen === left;
    this.#seen = left;
    return isStill && left !== this.#confirmed;
  }

  /** The number of frames that have left, without pings and pongs. Mod `words`. */
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
