/*
 * The part `session/streams`: the items of streams between the request and the answer of their call.
 * Promises: items arrive in order and within the credits. A slow consumer slows its own sender, and no other stream.
 * Takes: open calls from `session/calls`, frames and bodies from `session/connection`, schemas from `contract`.
 */

import { frameKind } from "../../wire/frame.ts";
import { Exchange } from "../calls/exchange.ts";
import type { SessionContext } from "../connection/context.ts";
import type { FrameHandler, SessionPart } from "../connection/session-part.ts";
import { SendTurns } from "./item-sender.ts";
import { CalleeItems } from "./items-of-call.ts";

/** The items of the streams on one session: finds the call that each frame belongs to. */
export class Streams implements SessionPart {
  readonly session: SessionContext;
  readonly turns: SendTurns;
  /** Streams are calls: the exchange counts them. */
  readonly openWork = 0;
  readonly frames: SessionPart["frames"];
  /** A view of the port's slab. */
  readonly #view: DataView;
  #exchange: Exchange | undefined;

  constructor(session: SessionContext) {
    this.session = session;
    this.turns = new SendTurns(session.outbox, session.services.progress);
    this.#view = session.port.slabView;
    this.frames = {
      [frameKind.input]: this.#onInput,
      [frameKind.inputsEnd]: this.#onInputsEnd,
      [frameKind.output]: this.#onOutput,
      [frameKind.inputCredits]: this.#onInputCredits,
      [frameKind.outputCredits]: this.#onOutputCredits,
    };
  }

  onOpen(): void {
    const exchange = this.session.part(Exchange);
    this.#exchange = exchange;
    exchange.incoming.openItems = (call, directions) =>
      new CalleeItems(this.session, this.turns, call, directions);
  }

  end(): void {
    this.turns.close();
  }

  // An answer may have crossed a frame of its caller: the frame is then dropped.

  readonly #onInput: FrameHandler = (at, bodyBytes, flags) => {
    const call = this.#exchange?.incoming.find(this.#callId(at));
    if (call === undefined) return;
    if (call.items === undefined) this.#faultOfUnary(call.id);
    else call.items.onItem(at, bodyBytes, flags);
  };

  readonly #onInputsEnd: FrameHandler = (at) => {
    const call = this.#exchange?.incoming.find(this.#callId(at));
    if (call === undefined) return;
    if (call.items === undefined) this.#faultOfUnary(call.id);
    else call.items.onItemsEnd(this.#word(at));
  };

  readonly #onOutputCredits: FrameHandler = (at) => {
    const call = this.#exchange?.incoming.find(this.#callId(at));
    if (call === undefined) return;
    if (call.items === undefined) this.#faultOfUnary(call.id);
    else call.items.onCredits(this.#items(at), this.#word(at));
  };

  // A callee's answer is its last frame, and until then the caller keeps the number.

  readonly #onOutput: FrameHandler = (at, bodyBytes, flags) => {
    const callId = this.#callId(at);
    const call = this.#exchange?.outgoing.find(callId);
    if (call === undefined) this.session.fault(`an item came for call ${callId}, which is not open`);
    else if (call.items === undefined) this.#faultOfUnary(callId);
    else call.items.onItem(at, bodyBytes, flags);
  };

  readonly #onInputCredits: FrameHandler = (at) => {
    const callId = this.#callId(at);
    const call = this.#exchange?.outgoing.find(callId);
    if (call === undefined) this.session.fault(`credits came for call ${callId}, which is not open`);
    else if (call.items === undefined) this.#faultOfUnary(callId);
    else call.items.onCredits(this.#items(at), this.#word(at));
  };

  #faultOfUnary(callId: number): void {
    this.session.fault(`call ${callId} is not a stream`);
  }

  #callId(at: number): number {
    return this.#view.getUint32(at + 4, true);
  }

  #items(at: number): number {
    return this.#view.getUint16(at + 2, true);
  }

  #word(at: number): number {
    return this.#view.getUint32(at + 12, true);
  }
}
