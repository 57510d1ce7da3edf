import { RpcError } from "../../base/errors/rpc-error.ts";
import type { ByteShare, RoomWaiter } from "../../base/flow/byte-budget.ts";
import {
  type FrameHead,
  frameFlag,
  frameHeaderBytes,
  frameKind,
  type RendezvousBody,
  readRendezvous,
  rendezvousOwner,
} from "../../wire/frame.ts";
import { defaultBodyStallMs } from "../../wire/handshake.ts";
import { type Body, malformed, noRoom, tooLarge } from "../connection/incoming-bodies.ts";
import type { Session } from "../connection/session.ts";
import { type ItemWindow, itemCost, ReceiveCredits } from "./item-credits.ts";
import type { ItemOrigin, ItemReceiver } from "./item-receiver.ts";

/** The call whose items arrive. */
export interface ArrivalsOwner {
  /** Items are no longer wanted. */
  readonly drops: boolean;
  /** An item is being pulled from the peer's memory. */
  onPullBegun(): void;
  onPullEnded(): void;
  /** An item could not be pulled: the stream cannot continue. */
  onLost(error: RpcError): void;
}

interface Pull {
  ended: boolean;
}

/**
 * The item frames that one request's stream receives: checked, counted against the credits, decoded or pulled. The
 * class extends its credits, which saves an object for each open stream.
 */
export class ItemArrivals extends ReceiveCredits implements ItemOrigin {
  readonly #session: Session;
  readonly #kind: number;
  readonly #callId: number;
  readonly #owner: ArrivalsOwner;
  readonly #receiver: ItemReceiver;
  readonly #budgeted: number;
  /** The number of items that have come. */
  count = 0;
  #isEnded = false;
  #closed = false;
  /** The memory of waiting items that counts for the peer. */
  #heldBytes = 0;
  /** The bytes by which waiting items exceed the window. They count in the peer's share of `maxPullBytes`. */
  #excessBytes = 0;
  /** The bytes of items that are being pulled or wait for their pull. Their pulls count in the same share. */
  #unpulledBytes = 0;
  /** The pulls in the order of arrival, in which they must be confirmed. */
  #pulls: Pull[] | undefined;
  #held: HeldItems | undefined;

  /** Grants the whole window to the peer. `kind`: the kind of the item frames. */
  constructor(
    session: Session,
    kind: typeof frameKind.input | typeof frameKind.output,
    callId: number,
    owner: ArrivalsOwner,
    receiver: ItemReceiver,
    window: ItemWindow,
  ) {
    const budgeted = budgetedBytes(session.account.streams, window.bytes);
    const bytes = Math.max(budgeted, Math.min(window.bytes, leastWindowBytes));
    super(bytes === window.bytes ? window : { items: window.items, bytes });
    this.#session = session;
    this.#budgeted = budgeted;
    this.#kind = kind;
    this.#callId = callId;
    this.#owner = owner;
    this.#receiver = receiver;
    receiver.origin = this;
    this.#grant();
  }

  get framesReceived(): number {
    return this.count + (this.#isEnded ? 1 : 0);
  }

  onItem(at: number, bodyBytes: number, flags: number): void {
    const session = this.#session;
    const view = session.port.slabView;
    const number = view.getUint32(at + 12, true);
    if (number !== this.count || this.#isEnded) return session.fault(this.#outOfOrder(number));
    const isPulled = (flags & frameFlag.rendezvous) !== 0;
    let rendezvous: RendezvousBody | undefined;
    if (isPulled) {
      const { maxBodyBytes } = session.services.limits;
      const isSealed = session.sealing.bodies !== undefined;
      const read = readRendezvous(view, at + frameHeaderBytes, bodyBytes, maxBodyBytes, isSealed);
      if (typeof read === "string") return session.fault(read);
      rendezvous = read;
    }
    const cost = itemCost(rendezvous?.bytes ?? bodyBytes);
    if (!this.arrive(cost))
      return session.fault(`item ${number} of call ${this.#callId} is beyond the credits`);
    this.count = (number + 1) >>> 0;
    session.services.counters.itemsReceived++;
    if (rendezvous !== undefined) this.#pull(rendezvous, cost);
    else if (!this.#owner.drops) {
      if (!this.#takeExcess()) return this.#owner.onLost(session.bodies.failure(noRoom));
      const value = session.bodies.valueAt(at, bodyBytes, false, undefined, this.#room);
      if (value === tooLarge) this.#onTooLarge();
      else if (value !== malformed) this.#receiver.push(value, cost, this.#hold());
    }
  }

  /** The peer has sent `count` items and sends no more. False after a fault. */
  onEnd(count: number): boolean {
    if (count === this.count && !this.#isEnded) {
      this.#isEnded = true;
      return true;
    }
    const came = this.#isEnded ? "the end had come before" : `${this.count} came`;
    this.#session.fault(`the items of call ${this.#callId} end after ${count}, ${came}`);
    return false;
  }

  onTaken(cost: number, heapBytes: number): void {
    if (heapBytes > 0 && !this.#closed) {
      this.#heldBytes -= heapBytes;
      this.#session.account.decoded.give(heapBytes);
    }
    const isDue = this.take(cost);
    if (this.#excessBytes > 0) this.#setExcess(this.excessBytes(this.#unpulledBytes));
    if (isDue && !this.#isEnded && !this.#closed) this.#grant();
  }

  /** The stream has ended: no more credits are granted. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#session.account.streams.give(this.#budgeted);
    this.#session.account.decoded.give(this.#heldBytes);
    this.#setExcess(0);
    this.#held?.drop();
  }

  onDiscarded(): void {
    this.#held?.drop();
  }

  /** Sends a grant of no credits: a frame for the stream is enough. */
  #sayStillHeld(): void {
    if (this.#closed || this.#session.state !== "open") return;
    this.#sayCredits(0, 0);
    this.#session.services.progress.wake();
  }

  /** Counts the bytes by which waiting items exceed the window. False when the peer's share has no room for them. */
  #takeExcess(): boolean {
    const excessBytes = this.excessBytes(this.#unpulledBytes);
    if (excessBytes <= this.#excessBytes) return true;
    if (!this.#session.account.pulls.take(excessBytes - this.#excessBytes)) return false;
    this.#excessBytes = excessBytes;
    return true;
  }

  #setExcess(bytes: number): void {
    const { pulls } = this.#session.account;
    if (bytes > this.#excessBytes) pulls.hold(bytes - this.#excessBytes);
    else pulls.give(this.#excessBytes - bytes);
    this.#excessBytes = bytes;
  }

  /**
   * The memory limit of an item. An input is held for the peer that sends it. Outputs belong to their caller: no limit.
   */
  get #room(): number | undefined {
    return this.#kind === frameKind.input ? this.#session.bodies.room : undefined;
  }

  /** Counts the memory of the last decoded item. */
  #hold(): number {
    if (this.#kind !== frameKind.input || this.#closed) return 0;
    const { heapBytes } = this.#session.bodies;
    this.#heldBytes += heapBytes;
    this.#session.account.decoded.hold(heapBytes);
    return heapBytes;
  }

  #onTooLarge(): void {
    const { limits } = this.#session.services;
    this.#owner.onLost(
      new RpcError({
        code: "resource_exhausted",
        message: `an item takes more memory than maxValueBytes ${limits.maxValueBytes} or the caller's share of maxDecodedBytes`,
        origin: this.#kind === frameKind.input ? "remote" : "local",
      }),
    );
  }

  #grant(): void {
    if (this.#session.state !== "open") return;
    this.grant((items, bytes) => this.#sayCredits(items, bytes));
    this.#session.services.progress.wake();
  }

  #sayCredits(items: number, bytes: number): void {
    const kind = this.#kind === frameKind.input ? frameKind.inputCredits : frameKind.outputCredits;
    this.#session.outbox.bare({ kind, method: items, callId: this.#callId, word: bytes });
  }

  #outOfOrder(number: number): string {
    const expected = this.#isEnded ? "came after the end" : `came, ${this.count} was next`;
    return `item ${number} of call ${this.#callId} ${expected}`;
  }

  #pull(rendezvous: RendezvousBody, cost: number): void {
    const session = this.#session;
    const owner = this.#owner;
    const receiver = this.#receiver;
    const pull: Pull = { ended: false };
    this.#pulls ??= [];
    this.#pulls.push(pull);
    if (owner.drops) return this.#onPullEnded(pull);
    const place = receiver.reserve(cost);
    this.#unpulledBytes += cost;
    const onBody = (body: Body | undefined, status: number): void => {
      this.#unpulledBytes -= cost;
      if (!owner.drops) {
        if (body === undefined) owner.onLost(session.bodies.failure(status));
        else {
          const value = session.bodies.decode(body, undefined, this.#room);
          // The item had room in the same share while it was being pulled.
          if (!this.#closed) this.#setExcess(this.excessBytes(this.#unpulledBytes));
          if (value === tooLarge) this.#onTooLarge();
          else if (value !== malformed) receiver.fill(place, value, this.#hold());
        }
      }
      this.#onPullEnded(pull);
      owner.onPullEnded();
    };
    const onSessionEnded = (): void => {
      const message = "the session ended while an item was being pulled";
      receiver.lose(new RpcError({ code: "unavailable", message, origin: "fabric" }));
    };
    const onDropped = (): void => {
      onSessionEnded();
      owner.onPullEnded();
    };
    // A slow consumer does not lose its stream: an item without room in the peer's share waits at the peer.
    this.#held ??= new HeldItems(session, () => this.#sayStillHeld());
    this.#held.add(() => {
      if (owner.drops || this.#closed || session.state === "ended") {
        if (session.state === "ended") onSessionEnded();
        this.#unpulledBytes -= cost;
        this.#onPullEnded(pull);
      } else if (session.bodies.pull(rendezvous, () => owner.drops, onBody, onDropped, true))
        owner.onPullBegun();
      else return false;
      return true;
    });
  }

  /** Notifies the peer of the ended pulls at the front: it frees its memory in that order. */
  #onPullEnded(pull: Pull): void {
    pull.ended = true;
    const pulls = this.#pulls as Pull[];
    const word = this.#kind === frameKind.input ? rendezvousOwner.input : rendezvousOwner.output;
    const head: FrameHead = { kind: frameKind.pulled, method: 0, callId: this.#callId, word };
    while (pulls[0]?.ended) {
      pulls.shift();
      if (this.#session.state === "open") this.#session.outbox.bare(head);
    }
    this.#session.services.progress.wake();
  }
}

/** The window of a stream when other streams have used `maxStreamBytes`. */
export const leastWindowBytes = 8192;

/** As much of a window as the budget has: the whole, a half, a quarter, and so on. */
function budgetedBytes(budget: ByteShare, windowBytes: number): number {
  for (let bytes = windowBytes; bytes > leastWindowBytes; bytes = Math.ceil(bytes / 2))
    if (budget.take(bytes)) return bytes;
  return 0;
}

/** Tries to take a waiting item. True when it is done. */
type TakeItem = () => boolean;

/**
 * The long items of one direction of a stream that wait at their sender, oldest first, because the peer's share has no
 * room for them. The sender keeps them for its `bodyStallMs` after the last frame for the stream. So it receives such
 * frames four times as often.
 */
export class HeldItems implements RoomWaiter {
  readonly #session: Session;
  readonly #onStillHeld: () => void;
  readonly #attempts: TakeItem[] = [];
  #cancelTimer: (() => void) | undefined;

  /** `onStillHeld` notifies the peer that items still wait. */
  constructor(session: Session, onStillHeld: () => void) {
    this.#session = session;
    this.#onStillHeld = onStillHeld;
  }

  /** Tries now, unless other items wait, and again whenever there may be room. */
  add(attempt: TakeItem): void {
    if (this.#attempts.length === 0 && attempt()) return;
    if (this.#attempts.push(attempt) > 1) return;
    this.#session.account.pulls.budget.wait(this);
    this.#arm();
  }

  onRoom(): boolean {
    while (this.#attempts[0]?.()) this.#attempts.shift();
    if (this.#attempts.length > 0) return false;
    this.#disarm();
    return true;
  }

  /** Items are no longer wanted: each attempt finds that out. */
  drop(): void {
    if (this.#attempts.length > 0 && this.onRoom()) this.#session.account.pulls.budget.leave(this);
  }

  #arm(): void {
    const { remote, services } = this.#session;
    const sayMs = (remote?.bodyStallMs ?? defaultBodyStallMs) / 4;
    const say = () => {
      this.#onStillHeld();
      this.#arm();
    };
    this.#cancelTimer = services.realClock.timer(sayMs, say, true);
  }

  #disarm(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }
}
