import { type Pulled, pullBody } from "../bulk/overflow.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { decodeAt, type RegionCodec } from "../wire/codec.ts";
import { frameFlag, frameHeaderBytes, frameKind, pulledBody, readOverflow } from "../wire/frame.ts";
import { type Body, malformed, noRoom } from "./body.ts";
import { AnswerCodec } from "./carrier.ts";
import type { FrameHead, Outbox } from "./outbox.ts";
import type { Session } from "./session.ts";

/** Tells the peer that the body of a frame about the session has been pulled. */
export const sessionPulled = {
  kind: frameKind.pulled,
  method: 0,
  callId: 0,
  word: pulledBody.response,
} as const;

/** The bodies of one session's incoming frames: those that stand in their message, and those that must be pulled. */
export class IncomingBodies {
  readonly #session: Session;
  readonly #outbox: Outbox;
  readonly #answers: AnswerCodec;
  #pulling = 0;
  /** Called for each that was being pulled when the session ended, once it is not any more. */
  onStill = () => {};

  constructor(session: Session, outbox: Outbox) {
    this.#session = session;
    this.#outbox = outbox;
    this.#answers = new AnswerCodec(session);
  }

  /** How many are being pulled. */
  get pulling(): number {
    return this.#pulling;
  }

  /**
   * Gives `then` the body of the frame at `at`: at once when it stands in the message, later when it must be pulled, not at all when the session ends
   * or `stop` says so first. The peer is told when its copy is free. Decoding happens in `then`, by `decode`. Where the end of the session kept a body that
   * had to be pulled from `then`, `dropped` is called once it is not being pulled any more.
   */
  take(
    at: number,
    flags: number,
    bodyBytes: number,
    stop: () => boolean,
    then: (body: Body | undefined, status: number) => void,
    pulledHead?: FrameHead,
    dropped?: () => void,
  ): void {
    const session = this.#session;
    const { port, address, host } = session;
    const start = at + frameHeaderBytes;
    if ((flags & frameFlag.overflow) === 0) {
      then({ bytes: port.slab, start, end: start + bodyBytes, own: false }, 0);
      return;
    }
    const overflow = readOverflow(port.slabView, start, bodyBytes, host.limits.maxBodyBytes);
    if (typeof overflow === "string") {
      session.fault(overflow);
      dropped?.();
      return;
    }
    const { pullBudget, counters } = host;
    if (!pullBudget.take(overflow.bytes)) {
      if (pulledHead !== undefined) this.#outbox.bare(pulledHead);
      then(undefined, noRoom);
      return;
    }
    const stopped = () => session.state === "ended" || stop();
    this.#pulling++;
    pullBody(port, address, overflow, stopped)
      .catch(noMemoryFor)
      .then((pulled) => {
        pullBudget.give(overflow.bytes);
        this.#pulling--;
        if (session.state === "ended") {
          dropped?.();
          return this.onStill();
        }
        if (pulledHead !== undefined) this.#outbox.bare(pulledHead);
        host.kick();
        if ("body" in pulled) {
          counters.bodiesPulled++;
          then({ bytes: pulled.body, start: 0, end: overflow.bytes, own: true }, 0);
        } else then(undefined, pulled.status);
      });
    host.kick();
  }

  /** The value in a body, or `malformed` after the session has been ended for it. */
  decode(body: Body | undefined, regions: RegionCodec = this.#answers): unknown {
    return body === undefined ? undefined : this.#decode(body.bytes, body.start, body.end, regions, body.own);
  }

  /** The value in the body of the frame at `at`, which stands in the message; or `malformed`, as above. */
  valueAt(at: number, bodyBytes: number, regions: RegionCodec = this.#answers): unknown {
    const start = at + frameHeaderBytes;
    return this.#decode(this.#session.port.slab, start, start + bodyBytes, regions, false);
  }

  #decode(bytes: Buffer, start: number, end: number, regions: RegionCodec, own: boolean): unknown {
    if (start === end) return undefined;
    try {
      return decodeAt(bytes, start, end, regions, own);
    } catch (error) {
      this.#session.fault(`body cannot be decoded: ${(error as Error).message}`);
      return malformed;
    }
  }
}

/** What the peer announced could not be allocated or registered here. That is this body's failure and nobody's fault. */
function noMemoryFor(error: unknown): Pulled {
  return { status: (error instanceof RpcError && error.fabric?.code) || outOfMemory };
}

const outOfMemory = 12; // ENOMEM
