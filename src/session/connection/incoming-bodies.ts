import { fabricError } from "../../base/errors/fabric-error.ts";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { BodiesUnderWay } from "../../base/flow/body-stalls.ts";
import { leastDecodedBytes } from "../../base/flow/engine-limits.ts";
import type { PeerAccount } from "../../base/flow/peer-account.ts";
import type { Counters } from "../../base/observe/counters.ts";
import type { Clock } from "../../base/time/clock.ts";
import type { Port } from "../../fabric/port.ts";
import type { Turns } from "../../fabric/progress.ts";
import type { BulkSealing } from "../../transfer/sealed/bulk-sealing.ts";
import { decodeAt, decodedHeapBytes } from "../../wire/decode-value.ts";
import { type RegionCodec, ValueTooLargeError } from "../../wire/extension.ts";
import {
  type FrameHead,
  frameFlag,
  frameHeaderBytes,
  frameKind,
  type RendezvousBody,
  readRendezvous,
  rendezvousOwner,
} from "../../wire/frame.ts";
import type { Outbox } from "../channel/outbox.ts";
import { AnswerCodec, type IdentifiedPeer } from "./peer-identity.ts";
import { forgedBody, type Pulled, type PullWatch, pullBody } from "./rendezvous.ts";

/** A frame's body as it stands in a message or, once pulled, in memory of its own. */
export interface Body {
  readonly bytes: Buffer;
  readonly start: number;
  readonly end: number;
  /** Decoded binary may be views of the bytes. */
  readonly own: boolean;
}

/** A body that has arrived with a frame or is described by it, and who wants it. */
export interface WantedBody {
  /** Where its frame, or what stands before it in the frame, is in the slab: the body or its descriptor follows. */
  readonly at: number;
  readonly flags: number;
  /** The length of the body or its descriptor. */
  readonly bodyBytes: number;
  /** Tells the peer that its copy of a body that had to be pulled is free. */
  readonly pulledHead?: FrameHead;
  /** Whether nobody wants it any more. */
  readonly stop: () => boolean;
  /** Undefined with a status for `failure` where the body cannot be had. */
  readonly onBody: (body: Body | undefined, status: number) => void;
  /** The end of the session kept a body that had to be pulled from `onBody`, and nothing is read any more. */
  readonly onDropped?: () => void;
}

/** What a greeting may take of the heap. A table of 65,280 methods takes a third. */
const maxGreetingHeapBytes = 16 * 1024 * 1024;
/** Status of a body that was not pulled, or not kept, because the pull budget is spent. */
export const noRoom = -1;
const keyRejected = 266; // FI_ENOKEY
const outOfMemory = 12; // ENOMEM

/** What decoding returns after it has ended the session for a malformed body. */
export const malformed = Symbol("malformed");
/** What decoding returns for a body that takes more memory than it may. */
export const tooLarge = Symbol("tooLarge");

/** Tells the peer that the body of a frame about the session has been pulled. */
export const sessionPulled = {
  kind: frameKind.pulled,
  method: 0,
  callId: 0,
  word: rendezvousOwner.response,
} as const;

/** A session as the bodies of its frames see it. */
interface BodyContext extends IdentifiedPeer {
  readonly port: Port;
  readonly address: number;
  readonly state: string;
  readonly services: {
    readonly realClock: Clock;
    readonly progress: Turns;
    readonly counters: Counters;
    readonly limits: {
      readonly maxBodyBytes: number;
      readonly maxValueBytes: number;
      readonly maxPullBytes: number;
      readonly maxBodyStallMs: number;
    };
  };
  /** What the peer makes this side hold. */
  readonly account: PeerAccount;
  readonly sealing: Pick<BulkSealing, "bodies">;
  readonly hasOpenWork: boolean;
  watch(): void;
  fault(text: string): void;
  end(reason: RpcError): void;
}

/** The bodies of one session's incoming frames: those that stand in their message, and those that must be pulled. */
export class IncomingBodies {
  readonly #session: BodyContext;
  readonly #outbox: Outbox;
  readonly #answers: AnswerCodec;
  readonly #pulls = new BodiesUnderWay();
  /** Bytes that were read since the peer was told how much has been read, and when that was. */
  #untoldBytes = 0;
  #toldMs = 0;
  /** What the last body that was decoded takes of V8's heap, in bytes, by estimate. */
  heapBytes = 0;
  /** What the greetings of the peer take, with an index of their names. They are kept as long as the session. */
  #greetingBytes = 0;
  #onStill = () => {};

  constructor(session: BodyContext, outbox: Outbox) {
    this.#session = session;
    this.#outbox = outbox;
    this.#answers = new AnswerCodec(session);
  }

  /** How many are being pulled. */
  get pulling(): number {
    return this.#pulls.size;
  }

  /** How long the oldest of them takes at `nowMs`, in milliseconds, if the peer provides too little; else 0. */
  overdueMs(nowMs: number): number {
    return this.#pulls.overdueMs(nowMs, this.#session.services.limits.maxBodyStallMs);
  }

  /**
   * Gets the body that is wanted: at once when it stands in the message, later when it must be pulled, not at all when the
   * session ends or `stop` says so first. The peer is told when its copy is free. Decoding happens in `onBody`, by
   * `decode`. Bodies that stand in their message need none of this: see `valueAt`.
   */
  take({ at, flags, bodyBytes, stop, onBody, pulledHead, onDropped }: WantedBody): void {
    const session = this.#session;
    const { port, services } = session;
    const start = at + frameHeaderBytes;
    if ((flags & frameFlag.rendezvous) === 0)
      return onBody({ bytes: port.slab, start, end: start + bodyBytes, own: false }, 0);
    const rendezvous = readRendezvous(
      port.slabView,
      start,
      bodyBytes,
      services.limits.maxBodyBytes,
      session.sealing.bodies !== undefined,
    );
    if (typeof rendezvous === "string") {
      session.fault(rendezvous);
      return onDropped?.();
    }
    const onPulled = (body: Body | undefined, status: number): void => {
      if (pulledHead !== undefined) this.#outbox.bare(pulledHead);
      onBody(body, status);
    };
    if (!this.pull(rendezvous, stop, onPulled, onDropped)) onPulled(undefined, noRoom);
  }

  /**
   * Pulls a body as `take` does. False, and nothing happens, where the peer's share has no room for it. With
   * `isCounted` the room is given back when `onBody` has counted what it keeps of the body, not before.
   */
  pull(
    rendezvous: RendezvousBody,
    stop: () => boolean,
    onBody: (body: Body | undefined, status: number) => void,
    onDropped?: () => void,
    isCounted = false,
  ): boolean {
    const session = this.#session;
    const { port, address, services } = session;
    const { counters, progress } = services;
    const { bytes } = rendezvous;
    const { pulls } = session.account;
    if (!pulls.take(bytes)) return false;
    if (!session.hasOpenWork) session.watch();
    if (this.#pulls.size === 0) {
      this.#untoldBytes = 0;
      this.#toldMs = services.realClock.now();
    }
    const underWay = this.#pulls.begin();
    let holders = isCounted ? 2 : 1;
    const letGo = () => {
      if (--holders === 0) pulls.give(bytes);
    };
    const watch: PullWatch = {
      stop: () => session.state === "ended" || stop(),
      onMoved: (more) => this.#onMoved(more),
      onReleased: letGo,
    };
    pullBody(port, address, rendezvous, watch, session.sealing.bodies?.opener)
      .catch(noMemoryFor)
      .then((pulled) => {
        // Many bodies of one peer may have come at once, and the value of each takes milliseconds.
        session.account.turns.run(() => {
          this.#pulls.end(underWay);
          if (session.state === "ended") {
            onDropped?.();
            this.#onStill();
          } else {
            progress.wake();
            if ("body" in pulled) {
              counters.bodiesPulled++;
              onBody({ bytes: pulled.body, start: 0, end: bytes, own: true }, 0);
            } else onBody(undefined, pulled.status);
          }
          if (isCounted) letGo();
        });
      });
    progress.wake();
    return true;
  }

  /**
   * More has been read. The peer cannot see that, so it is told when bodies take long. It waits no longer than
   * `bodyStallMs` after bytes of which it knows.
   */
  #onMoved(bytes: number): void {
    this.#pulls.onMoved(bytes);
    this.#untoldBytes += bytes;
    const { remote, services, state } = this.#session;
    const nowMs = services.realClock.now();
    if (remote === undefined || nowMs - this.#toldMs < remote.bodyStallMs / 4 || state !== "open") return;
    const word = Math.min(this.#untoldBytes, 0xffff_ffff);
    this.#untoldBytes = 0;
    this.#toldMs = nowMs;
    this.#outbox.bare({ kind: frameKind.pulling, method: 0, callId: 0, word });
    services.progress.wake();
  }

  /**
   * How much memory the value of a request or a greeting may take: it is held for the peer. That of an answer is its
   * caller's, and has only `maxValueBytes` as its limit.
   */
  get room(): number {
    const { account, services } = this.#session;
    return Math.min(services.limits.maxValueBytes, account.decoded.room(leastDecodedBytes));
  }

  /** Gives `then` the value of a welcome or a service table, unless the session has been ended for it. */
  greeting(body: Body, then: (value: unknown) => void): void {
    const session = this.#session;
    const value = this.decode(body, undefined, Math.min(this.room, maxGreetingHeapBytes));
    if (value === malformed) return;
    if (value === tooLarge) {
      const message = `the service table of ${session.peerName} takes more than its share of limits.maxDecodedBytes`;
      session.end(new RpcError({ code: "resource_exhausted", message }));
      return;
    }
    // The index of its names takes about as much again.
    const bytes = 2 * this.heapBytes;
    this.#greetingBytes += bytes;
    session.account.decoded.hold(bytes);
    then(value);
  }

  /** The session has ended. `onStill` is called for each body that is being pulled, once it is not any more. */
  close(onStill: () => void): void {
    this.#onStill = onStill;
    this.#session.account.decoded.give(this.#greetingBytes);
  }

  /**
   * The value in a body; `malformed` after the session has been ended for it; `tooLarge` where it takes more than
   * `maxHeapBytes`.
   */
  decode(
    body: Body | undefined,
    regions: RegionCodec = this.#answers,
    maxHeapBytes = this.#session.services.limits.maxValueBytes,
  ): unknown {
    if (body === undefined) return undefined;
    return this.#decode(body.bytes, body.start, body.end, regions, body.own, maxHeapBytes);
  }

  /**
   * The value in the body of the frame at `at`, which stands in the message; otherwise as above. `maxBodyBytes` is no
   * limit for control requests and their answers.
   */
  valueAt(
    at: number,
    bodyBytes: number,
    isControl = false,
    regions: RegionCodec = this.#answers,
    maxHeapBytes = this.#session.services.limits.maxValueBytes,
  ): unknown {
    if (!isControl && bodyBytes > this.#session.services.limits.maxBodyBytes) {
      this.#refuseLength(bodyBytes);
      return malformed;
    }
    const start = at + frameHeaderBytes;
    return this.#decode(this.#session.port.slab, start, start + bodyBytes, regions, false, maxHeapBytes);
  }

  /**
   * A copy of the body of the frame at `at`, which stands in the message: its place is given to others. Undefined after
   * the session has been ended for it.
   */
  copyAt(at: number, bodyBytes: number): Body | undefined {
    if (bodyBytes > this.#session.services.limits.maxBodyBytes) return this.#refuseLength(bodyBytes);
    const start = at + frameHeaderBytes;
    const bytes = Buffer.from(this.#session.port.slab.subarray(start, start + bodyBytes));
    return { bytes, start: 0, end: bodyBytes, own: false };
  }

  /** The error of a body that could not be had. `status` is as `take` gives it. */
  failure(status: number): RpcError {
    const { port, peerName, services } = this.#session;
    if (status === noRoom) {
      return new RpcError({
        code: "resource_exhausted",
        message: `a body cannot be kept: this peer's share of maxPullBytes ${services.limits.maxPullBytes} is reached`,
      });
    }
    if (status === forgedBody) {
      const message = `a body from ${peerName} was changed on its way: its tag is wrong`;
      return new RpcError({ code: "data_loss", message });
    }
    // A body stays until its receiver says that it has it. A sender that withdraws one has given the session up, for
    // this side's silence perhaps, and nobody may have told us yet.
    const isWithdrawn = status === keyRejected;
    return fabricError({
      provider: port.provider,
      op: "fi_read",
      code: status,
      ...(isWithdrawn ? { rpcCode: "unavailable" } : {}),
      message: isWithdrawn
        ? `${peerName} has withdrawn a body before it was pulled: it has given the session up`
        : `pulling a body from ${peerName} failed`,
    });
  }

  /** Ends the session for a body that the peer was told not to send. */
  #refuseLength(bodyBytes: number): undefined {
    const { maxBodyBytes } = this.#session.services.limits;
    this.#session.fault(`body of ${bodyBytes} bytes exceeds maxBodyBytes ${maxBodyBytes}`);
  }

  #decode(
    bytes: Buffer,
    start: number,
    end: number,
    regions: RegionCodec,
    own: boolean,
    maxHeapBytes: number,
  ): unknown {
    this.heapBytes = 0;
    if (start === end) return undefined;
    try {
      const value = decodeAt(bytes, start, end, regions, own, maxHeapBytes);
      this.heapBytes = decodedHeapBytes();
      return value;
    } catch (error) {
      if (error instanceof ValueTooLargeError) {
        this.#session.services.counters.valuesTooLarge++;
        return tooLarge;
      }
      this.#session.fault(`body cannot be decoded: ${(error as Error).message}`);
      return malformed;
    }
  }
}

/**
 * What the peer announced could not be allocated or registered here. That is this body's failure and nobody's fault.
 */
function noMemoryFor(error: unknown): Pulled {
  return { status: (error instanceof RpcError && error.fabric?.code) || outOfMemory };
}
