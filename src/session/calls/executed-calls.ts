import type { Flushable } from "../../fabric/progress.ts";
import { frameHeaderBytes, frameKind } from "../../wire/frame.ts";
import type { Session } from "../connection/session.ts";
import type { FrameHandler } from "../connection/session-part.ts";
import type { OutgoingCalls } from "./outgoing-calls.ts";

/** The bytes of one call in an `executed` frame: its number. */
const callBytes = 4;
/** So many calls leave without a wait for more, because their callers may wait for the places that they free. */
const mostInFrame = 128;

/**
 * The one-way calls of a session that were executed here. The peer is notified at the end of the turn: one frame for
 * all of them.
 */
export class ExecutedCalls implements Flushable {
  flushQueued = false;
  readonly #session: Session;
  /** Made with the first call: most sessions have no one-way calls. */
  #body: Uint8Array<ArrayBuffer> | undefined;
  #view: DataView | undefined;
  #count = 0;

  constructor(session: Session) {
    this.#session = session;
  }

  /** A one-way call has succeeded. */
  add(id: number): void {
    this.#body ??= new Uint8Array(mostInFrame * callBytes);
    this.#view ??= new DataView(this.#body.buffer);
    this.#view.setUint32(this.#count * callBytes, id, true);
    if (++this.#count === mostInFrame) this.#send();
    else this.#session.services.progress.flushSoon(this);
  }

  flush(): boolean {
    if (this.#count === 0 || this.#session.state === "ended") return false;
    this.#send();
    return this.#session.outbox.flush();
  }

  #send(): void {
    const body = (this.#body as Uint8Array).subarray(0, this.#count * callBytes);
    this.#count = 0;
    this.#session.outbox.raw({ kind: frameKind.executed, method: 0, callId: 0, word: 0 }, 0, body);
  }
}

/** Takes the frames that the peer's `ExecutedCalls` sends. */
export function executedFrames(session: Session, calls: OutgoingCalls): FrameHandler {
  const view = session.port.slabView;
  return (at, bodyBytes) => {
    if (bodyBytes === 0 || bodyBytes % callBytes !== 0)
      return session.fault(`executed calls take ${callBytes} bytes each, and ${bodyBytes} came`);
    const end = at + frameHeaderBytes + bodyBytes;
    for (let each = at + frameHeaderBytes; each < end; each += callBytes) {
      const callId = view.getUint32(each, true);
      const call = calls.find(callId);
      if (call === undefined) session.services.counters.lateAnswers++;
      else if (call.terms.isOneWay) calls.onExecuted(call);
      else return session.fault(`call ${callId} is not one-way and needs an answer`);
    }
    calls.sendWaiting();
  };
}
