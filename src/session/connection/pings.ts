import { frameKind, senderState } from "../../wire/frame.ts";
import { type Confirmation, leastConfirmationWord } from "../channel/confirmation.ts";
import type { Outbox } from "../channel/outbox.ts";
import type { RemoteState } from "./keepalive.ts";
import type { SessionPart } from "./session-part.ts";

/**
 * The word of the pings of a side that drains: the echo says that the peer sends no more requests. The words of other
 * pings about the session lie below, down to `leastConfirmationWord`.
 */
export const drainWord = 0xffff_ffff;

/** A session as its pings see it. */
interface PingContext {
  readonly port: { readonly slabView: DataView };
  readonly outbox: Outbox;
  readonly remoteState: RemoteState;
  readonly confirmation: Confirmation;
  readonly services: {
    readonly gate: { readonly requests: boolean };
    readonly progress: { wake(): void };
  };
  /** The peer takes no new calls from now on. */
  onDraining(): void;
  /** The peer has answered a ping that had this word; 0 for those about the session itself. */
  onPong(word: number): void;
}

/** Asks whether the peer is there, and answers when it asks. Each frame tells whether its sender takes calls. */
export class Pings {
  readonly #session: PingContext;
  /** A ping of the message that is being taken apart wants an answer. */
  isAsked = false;
  #word = 0;

  constructor(session: PingContext) {
    this.#session = session;
  }

  readonly frames: SessionPart["frames"] = {
    [frameKind.ping]: (at) => {
      this.#onState(at);
      this.isAsked = true;
      this.#word = this.#session.port.slabView.getUint32(at + 12, true);
    },
    [frameKind.pong]: (at) => {
      this.#onState(at);
      const { remoteState, confirmation, port } = this.#session;
      if (remoteState.busy) return;
      const word = port.slabView.getUint32(at + 12, true);
      if (word === drainWord) remoteState.knowsThatWeDrain = true;
      else if (word >= leastConfirmationWord) confirmation.onPong(word);
      this.#session.onPong(word >= leastConfirmationWord ? 0 : word);
    },
  };

  /** A pong with this word says that the peer has taken all that was sent before. */
  ask(word: number): void {
    const { confirmation, services } = this.#session;
    const ours = services.gate.requests ? confirmation.word : drainWord;
    this.#say(frameKind.ping, word === 0 ? ours : word);
  }

  /** A message has been taken apart: all its pings have one answer, which has the word of the last. */
  answer(): void {
    this.isAsked = false;
    this.#say(frameKind.pong, this.#word);
  }

  #say(kind: number, word: number): void {
    const { outbox, services, confirmation } = this.#session;
    const state = services.gate.requests ? senderState.serving : senderState.draining;
    const head = { kind, method: state, callId: 0, word };
    confirmation.onState();
    if (kind === frameKind.pong) outbox.latest(head);
    else outbox.bare(head);
    services.progress.wake();
  }

  #onState(at: number): void {
    const { port, remoteState } = this.#session;
    if (remoteState.onState(port.slabView.getUint16(at + 2, true))) this.#session.onDraining();
  }
}
