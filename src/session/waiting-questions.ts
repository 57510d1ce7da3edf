import type { OutgoingCall } from "../call/outgoing-call.ts";
import { exhausted } from "./call-errors.ts";

/** Each is some user's operation, and users can be faster than the peer. */
const most = 65_536;

/** A call of a built-in method, and what it takes to send it. */
export interface WaitingQuestion {
  readonly call: OutgoingCall;
  readonly method: number;
  readonly endMs: number;
  readonly input: unknown;
}

/** Calls of built-in methods for which there was no slot, in the order they came. */
export class WaitingQuestions {
  readonly #questions: WaitingQuestion[] = [];
  readonly #peerName: string;

  constructor(peerName: string) {
    this.#peerName = peerName;
  }

  /** @throws RpcError `resource_exhausted` when too many wait. */
  add(question: WaitingQuestion): void {
    if (this.#questions.length >= most)
      throw exhausted(`${most} questions to ${this.#peerName} wait for a slot`);
    this.#questions.push(question);
  }

  /** The first whose asker still waits. */
  next(): WaitingQuestion | undefined {
    for (;;) {
      const question = this.#questions.shift();
      if (question === undefined || !question.call.settled) return question;
    }
  }

  takeAll(): WaitingQuestion[] {
    return this.#questions.splice(0);
  }
}
