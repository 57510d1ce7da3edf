/*
 * The part `session/streams`: the items of streams between the request and the answer of their call.
 * Promises: items arrive in order and within the credits. A slow consumer slows its own sender, and no other stream.
 * Takes: open calls from `session/calls`, frames and bodies from `session/connection`, schemas from `contract`.
 */

import type { CallItems } from "../../call/call-items.ts";
import { frameKind } from "../../wire/frame.ts";
import { Exchange } from "../calls/exchange.ts";
import type { Session } from "../connection/session.ts";
import type { FrameHandler, SessionPart } from "../connection/session-part.ts";
import { SendTurns } from "./item-sender.ts";
import { CalleeItems } from "./items-of-call.ts";

/** The items of the streams on one session: finds the call that each frame belongs to. */
export class Streams implements SessionPart {
  readonly session: Session;
  readonly turns: SendTurns;
  /** Streams are calls: the exchange counts them. */
  readonly openWork = 0;
  readonly frames: SessionPart["frames"];
  readonly #view: DataView;
  #exchange: Exchange | undefined;

  constructor(session: Session) {
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

  readonly #onInput: FrameHandler = (at, bodyBytes, flags) => this.#served(at)?.onItem(at, bodyBytes, flags);

  readonly #onInputsEnd: FrameHandler = (at) => this.#served(at)?.onItemsEnd(this.#word(at));

  readonly #onOutputCredits: FrameHandler = (at) =>
    this.#served(at)?.onCredits(this.#items(at), this.#word(at));

  readonly #onOutput: FrameHandler = (at, bodyBytes, flags) =>
    this.#made(at, "an item")?.onItem(at, bodyBytes, flags);

  readonly #onInputCredits: FrameHandler = (at) =>
    this.#made(at, "credits")?.onCredits(this.#items(at), this.#word(at));

  /** The items of a call that is served here. The answer may have crossed the frame, which is then dropped. */
  #served(at: number): CallItems | undefined {
    const call = this.#exchange?.incoming.find(this.#callId(at));
    return call && this.#itemsOf(call);
  }

  /** The items of a call that was made here. The answer is the callee's last frame for it. */
  #made(at: number, what: string): CallItems | undefined {
    const call = this.#exchange?.outgoing.find(this.#callId(at));
    if (call !== undefined) return this.#itemsOf(call);
    this.session.fault(`${what} came for call ${this.#callId(at)}, which is not open`);
    return undefined;
  }

  #itemsOf({
    id,
    items,
  }: {
    readonly id: number;
    readonly items: CallItems | undefined;
  }): CallItems | undefined {
    if (items === undefined) this.session.fault(`call ${id} is not a stream`);
    return items;
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
