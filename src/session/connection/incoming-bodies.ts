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

/** The body of a frame: in its message or, once pulled, in memory of its own. */
export interface Body {
  readonly bytes: Buffer;
  readonly start: number;
  readonly end: number;
  /** Decoded binary data may be views of the bytes. */
  readonly own: boolean;
}

/** A body that has arrived with a frame or is described by it, with its receiver. */
export interface WantedBody {
  /** The offset in the slab, `frameHeaderBytes` before the body or its descriptor. */
  readonly at: number;
  readonly flags: number;
  /** The length of the body or its descriptor. */
  readonly bodyBytes: number;
  /** Notifies the peer that its copy of a pulled body is free. */
  readonly pulledHead?: FrameHead;
  /** Whether the body is no longer wanted. */
  readonly stop: () => boolean;
  /** Receives undefined with a status for `failure` when the body could not be had. */
  readonly onBody: (body: Body | undefined, status: number) => void;
  /** The session ended before `onBody` received a pulled body. Reading has stopped. */
  readonly onDropped?: () => void;
}

/** The most heap for greetings. A table of 65,280 methods takes a third. */
const maxGreetingHeapBytes = 16 * 1024 * 1024;
/** Status of a body that was not pulled, or not kept, because the pull budget is spent. */
export const noRoom = -1;
const keyRejected = 266; // FI_ENOKEY
const outOfMemory = 12; // ENOMEM

/** The result of decoding a malformed body. It has ended the session. */
export const malformed = Symbol("malformed");
/** The result of decoding a body that takes more memory than it may. */
export const tooLarge = Symbol("tooLarge");

/** Notifies the peer that the body of a frame about the session has been pulled. */
export const sessionPulled = {
  kind: frameKind.pulled,
  method: 0,
  callId: 0,
  word: rendezvousOwner.response,
} as const;

/** The session of the bodies. */
export interface BodyContext extends IdentifiedPeer {
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
  /** The memory that the peer makes this side hold. */
  readonly account: PeerAccount;
  readonly sealing: Pick<BulkSealing, "bodies">;
  readonly hasOpenWork: boolean;
  watch(): void;
  fault(text: string): void;
  end(reason: RpcError): void;
}

/** The bodies of one session's incoming frames: bodies in their message, and bodies to pull. */
export class IncomingBodies {
  readonly #session: BodyContext;
  readonly #outbox: Outbox;
  readonly #answers: AnswerCodec;
  readonly #pulls = new BodiesUnderWay();
  /** Bytes read since the last report to the peer, and the time of that report. */
  #untoldBytes = 0;
  #toldMs = 0;
  /** The estimated size of the last decoded body in V8's heap, in bytes. */
  heapBytes = 0;
  /** The memory of the peer's greetings, with an index of their names. They are kept as long as the session. */
  #greetingBytes = 0;
  #onStill = () => {};

  constructor(session: BodyContext, outbox: Outbox) {
    this.#session = session;
    this.#outbox = outbox;
    this.#answers = new AnswerCodec(session);
  }

  /** The number of pulls under way. */
  get pulling(): number {
    return this.#pulls.size;
  }

  /** The time of the oldest overdue pull at `nowMs`, in milliseconds, if the peer provides too little. Otherwise 0. */
  overdueMs(nowMs: number): number {
    return this.#pulls.overdueMs(nowMs, this.#session.services.limits.maxBodyStallMs);
  }

  /**
   * Gets a body: at once from its message, or later by a pull. Never, when the session ends or `stop` returns true
   * first. The peer is notified when its copy is free. `onBody` decodes the body by `decode`. A body in its message can
   * also be read by `valueAt`.
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
   * Pulls a body as `take` does. False, without an effect, when the peer's share has no room for it. With `isCounted`,
   * the room is given back only after `onBody` has counted the kept part of the body.
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
    // Its memory, and its turn: a body that waits for a turn still counts.
    let holders = 2;
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
        this.#pulls.end(underWay);
        if (session.state === "ended") this.#onStill();
        // Many bodies of one peer may have come at once, and the value of each takes milliseconds.
        session.account.turns.run(() => {
          if (!isCounted) letGo();
          if (session.state === "ended") onDropped?.();
          else {
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
   * More has been read. The peer cannot see that, so it is notified when bodies take long. After each report that it
   * receives, it waits at most `bodyStallMs`.
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
   * The memory limit for the value of a request or a greeting, which is held for the peer. The value of an answer
   * belongs to its caller: only `maxValueBytes` limits it.
   */
  get room(): number {
    const { account, services } = this.#session;
    return Math.min(services.limits.maxValueBytes, account.decoded.room(leastDecodedBytes));
  }

  /** Passes the value of a welcome or a service table to `then`, unless the value has ended the session. */
  greeting(body: Body, then: (value: unknown) => void): void {
    const session = this.#session;
    const value = this.decode(body, undefined, Math.min(this.room, maxGreetingHeapBytes));
    if (value === malformed) return;
    if (value === tooLarge) {
      const message = `the service table of ${session.peerName} takes more than its share of limits.maxDecodedBytes`;
      session.end(new RpcError({ code: "resource_exhausted", message }));
      return;
    }
    // The index of its names takes about the same again.
    const bytes = 2 * this.heapBytes;
    this.#greetingBytes += bytes;
    session.account.decoded.hold(bytes);
    then(value);
  }

  /** The session has ended. `onStill` is called for each body under way when its pull has ended. */
  close(onStill: () => void): void {
    this.#onStill = onStill;
    this.#session.account.decoded.give(this.#greetingBytes);
  }

  /** Decodes a body. `malformed` after a fault that has ended the session. `tooLarge` for more than `maxHeapBytes`. */
  decode(
    body: Body | undefined,
    regions: RegionCodec = this.#answers,
    maxHeapBytes = this.#session.services.limits.maxValueBytes,
  ): unknown {
    if (body === undefined) return undefined;
    return this.#decode(body.bytes, body.start, body.end, regions, body.own, maxHeapBytes);
  }

  /**
   * Decodes the body of the frame at `at`, which lies in the message; otherwise like `decode`. `maxBodyBytes` does not
   * limit control requests and their answers.
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
   * A copy of the body of the frame at `at`, because later messages need its place. Undefined after a fault that has
   * ended the session.
   */
  copyAt(at: number, bodyBytes: number): Body | undefined {
    if (bodyBytes > this.#session.services.limits.maxBodyBytes) return this.#refuseLength(bodyBytes);
    const start = at + frameHeaderBytes;
    const bytes = Buffer.from(this.#session.port.slab.subarray(start, start + bodyBytes));
    return { bytes, start: 0, end: bodyBytes, own: false };
  }

  /** The error for a body that could not be had. `status` comes from `take`. */
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
    // A body stays until its receiver reports that it has it. A sender that withdraws a body has ended the session,
    // perhaps for this side's silence, and the notice may not have come yet.
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

  /** Ends the session for a body beyond the limit in this side's greeting. */
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
      this.heapBytes = decodedHeapBytes;
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
 * Memory for the announced body could not be allocated or registered here. The body fails, and neither side is at
 * fault.
 */
function noMemoryFor(error: unknown): Pulled {
  return { status: (error instanceof RpcError && error.fabric?.code) || outOfMemory };
}
