import { RpcError } from "../../base/errors/rpc-error.ts";
import { BodiesUnderWay, type BodyUnderWay } from "../../base/flow/body-stalls.ts";
import type { ByteShare } from "../../base/flow/byte-budget.ts";
import type { Counters } from "../../base/observe/counters.ts";
import { access, type Port, type RegisteredMemory } from "../../fabric/port.ts";
import { type Grant, withEnds } from "../../memory/grant.ts";
import type { PieceCiphers } from "../../transfer/control/sealed-bulk.ts";
import { pacingOf } from "../../transfer/pacing.ts";
import { Scheduler } from "../../transfer/scheduler.ts";
import type { BulkSealing } from "../../transfer/sealed/bulk-sealing.ts";
import { bodyContext } from "../../transfer/sealed/piece.ts";
import { giveBodyMemory } from "../../wire/body-memory.ts";
import { TooLongError } from "../../wire/extension.ts";
import { type RendezvousBody, rendezvousOwner } from "../../wire/frame.ts";

/*
 * The rendezvous of bodies that do not fit a message. The sender offers the encoded body in registered memory of its
 * own. The frame carries only the location, and the receiver pulls the body by RMA. Users never see it.
 *
 * Each body has a registration of its exact length. So its key opens that body alone, and no older memory.
 */

/**
 * Lets the peer behind `address` pull `bytes`, or their ciphertext in the same place. The grant ends at the peer's
 * notice. Body memory is then given back.
 */
export function offerBody(
  port: Port,
  address: number,
  bytes: Uint8Array,
  sealer?: PieceCiphers["sealer"],
): { readonly rendezvous: RendezvousBody; readonly grant: Grant } {
  const { buffer, byteOffset, byteLength } = bytes;
  const seal = sealer?.seal(bytes, bytes, bodyContext(byteLength));
  const registered = port.register(buffer, byteOffset, byteLength, access.remoteRead, address);
  let released = false;
  return {
    rendezvous: { key: registered.key, address: registered.base, bytes: byteLength, seal },
    grant: {
      bytes: byteLength,
      memory: [bytes],
      release(onReleased) {
        if (released) return;
        released = true;
        port.deregister(registered.index, () => {
          giveBodyMemory(buffer);
          onReleased?.();
        });
      },
    },
  };
}

/** The status of a sealed body that differs from what its sender sealed. No provider has negative numbers. */
export const forgedBody = -2;

/** A pulled body, or libfabric's error number; 0 for a pull that `stop` ended. */
export type Pulled = { readonly body: Buffer } | { readonly status: number };

/** The events of a pull. */
export interface PullWatch {
  /** Whether the body is no longer wanted. */
  stop(): boolean;
  /** More of the body has come. */
  onMoved(bytes: number): void;
  /** This side no longer holds memory for the pull, except memory that it has handed on. */
  onReleased(): void;
}

/** Pulls a body into its own memory. The decoded value may keep views of that memory. */
export async function pullBody(
  port: Port,
  address: number,
  rendezvous: RendezvousBody,
  { stop, onMoved, onReleased }: PullWatch,
  opener?: PieceCiphers["opener"],
): Promise<Pulled> {
  const { key, address: remote, bytes, seal } = rendezvous;
  const [memory, local] = memoryFor(port, bytes, onReleased);
  let moved = 0;
  return new Promise((resolve) => {
    Scheduler.of(port).start({
      op: "read",
      address,
      extents: [{ local, offset: 0, bytes, key, remote }],
      pacing: pacingOf(port),
      listener: {
        stopped: stop,
        onMoved(more) {
          moved += more;
          onMoved(more);
        },
        onEnded(status) {
          port.deregister(local.index, onReleased);
          if (moved < bytes) return resolve({ status });
          const body = Buffer.from(memory);
          const isWhole =
            seal === undefined || opener?.open(seal.counter, seal.tag, body, body, bodyContext(bytes));
          resolve(isWhole === true ? { body } : { status: forgedBody });
        },
      },
    });
  });
}

/** Allocates memory to pull into. After an error no memory is held. */
function memoryFor(port: Port, bytes: number, onReleased: () => void): [ArrayBuffer, RegisteredMemory] {
  try {
    // Not filled with zeros: only a complete body is read.
    const { buffer } = Buffer.allocUnsafeSlow(bytes);
    return [buffer, port.register(buffer, 0, bytes, access.local)];
  } catch (error) {
    onReleased();
    throw error;
  }
}

/**
 * The owner of a kept body: the session, a request, or the answer in a slot. A number, because every call checks
 * whether one of its own bodies is kept.
 */
export const sessionBody = -1;
export const requestBody = (callId: number): number => 2 * callId;
export const answerBody = (callId: number): number => 2 * (callId & slotMask) + 1;
/** The slot of a call id, as `SlotTable` makes it. */
const slotMask = (1 << 20) - 1;

/** The items of one direction of a stream: from the caller, or from the callee. */
export const inputItems = (callId: number): number => 2 * callId;
export const outputItems = (callId: number): number => 2 * callId + 1;

/** An item of a stream that the peer has not pulled yet. */
interface OfferedItem {
  /** The key of its body. */
  readonly key: number;
  readonly onPulled: () => void;
}

/** The engine's services for offers. */
interface OfferServices {
  readonly counters: Counters;
  readonly limits: { readonly maxOfferBytes: number; readonly maxBodyStallMs: number };
}

/** A kept body. */
interface Offer extends Grant {
  readonly underWay: BodyUnderWay;
}

/**
 * Bodies that one session offers. They are kept until the peer reports that it has pulled them. They are few and large,
 * so a Map suffices.
 */
export class RendezvousOffers {
  readonly #port: Port;
  readonly #address: number;
  readonly #services: OfferServices;
  /** The memory that the peer makes this side keep. */
  readonly #share: ByteShare;
  readonly #sealing: Pick<BulkSealing, "bodies"> | undefined;
  /** Bodies that wait to be pulled, by key. */
  readonly kept = new Map<number, Offer>();
  readonly #underWay = new BodiesUnderWay();
  /** Bytes of all bodies ever kept, and bytes that the peer reports as read. */
  #offeredBytes = 0;
  #readBytes = 0;
  /** By direction of a stream, oldest first. */
  readonly #items = new Map<number, OfferedItem[]>();
  /** The last key of an item. Only items have negative keys. */
  #itemKey = sessionBody;

  constructor(
    port: Port,
    address: number,
    services: OfferServices,
    share: ByteShare,
    sealing?: Pick<BulkSealing, "bodies">,
  ) {
    this.#sealing = sealing;
    this.#port = port;
    this.#address = address;
    this.#services = services;
    this.#share = share;
  }

  /**
   * Keeps `body` under `key`, and owns its memory from then on. Throws TooLongError for a body that the peer would not
   * take, RpcError `resource_exhausted` when too much is kept already.
   */
  offer(key: number, body: Uint8Array, limit: number): RendezvousBody {
    if (body.byteLength > limit) {
      throw new TooLongError(`the body has ${body.byteLength} bytes, maxBodyBytes is ${limit}`);
    }
    const { counters, limits } = this.#services;
    const share = this.#share;
    const bytes = body.byteLength;
    if (!share.take(bytes)) {
      throw new RpcError({
        code: "resource_exhausted",
        message:
          `${share.budget.bytes} bytes wait to be pulled, ${share.bytes} of them by this peer; ${bytes} more would ` +
          `exceed its share of maxOfferBytes ${limits.maxOfferBytes}`,
      });
    }
    try {
      const { rendezvous, grant } = offerBody(this.#port, this.#address, body, this.#sealing?.bodies?.sealer);
      counters.bodiesOffered++;
      const release = (onReleased?: () => void) => {
        grant.release(() => {
          share.give(bytes);
          onReleased?.();
        });
      };
      this.kept.set(key, { ...withEnds(grant, { release }), underWay: this.#underWay.begin() });
      this.#offeredBytes += bytes;
      return rendezvous;
    } catch (error) {
      share.give(bytes);
      throw error;
    }
  }

  /**
   * Keeps an item of a stream, as `offer` does. `onPulled` is called when the peer has the item or does not want it.
   */
  offerItem(items: number, body: Uint8Array, limit: number, onPulled: () => void): RendezvousBody {
    const key = this.#itemKey - 1;
    const rendezvous = this.offer(key, body, limit);
    this.#itemKey = key;
    const offered = this.#items.get(items);
    if (offered === undefined) this.#items.set(items, [{ key, onPulled }]);
    else offered.push({ key, onPulled });
    return rendezvous;
  }

  /** The rest of these items will not be pulled. */
  releaseItems(items: number): void {
    const offered = this.#items.get(items) ?? [];
    this.#items.delete(items);
    for (const { key } of offered) this.release(key);
  }

  /** The peer's consumer is slow, and the peer has sent a frame for the stream: its unpulled items are kept longer. */
  renewItems(items: number): void {
    if (this.#items.size === 0) return;
    for (const { key } of this.#items.get(items) ?? []) {
      const offer = this.kept.get(key);
      if (offer !== undefined) this.#underWay.renew(offer.underWay);
    }
  }

  #onItemPulled(items: number): void {
    const offered = this.#items.get(items);
    const oldest = offered?.shift();
    if (oldest === undefined) return;
    if (offered?.length === 0) this.#items.delete(items);
    this.release(oldest.key);
    oldest.onPulled();
  }

  has(key: number): boolean {
    return this.kept.size > 0 && this.kept.has(key);
  }

  /** A peer reports that it has pulled a body, or does not want it. Returns the fault of this report, or "". */
  onPulled(callId: number, owner: number): string {
    if (owner === rendezvousOwner.response) this.release(callId === 0 ? sessionBody : answerBody(callId));
    else if (owner === rendezvousOwner.request) this.release(requestBody(callId));
    else if (owner === rendezvousOwner.output) this.#onItemPulled(outputItems(callId));
    else if (owner === rendezvousOwner.input) this.#onItemPulled(inputItems(callId));
    else return `pulled has the unknown word ${owner} for call ${callId}`;
    return "";
  }

  /** The peer has pulled the body, or does not want it. */
  release(key: number): void {
    if (this.kept.size === 0) return;
    const offer = this.kept.get(key);
    if (offer === undefined) return;
    this.kept.delete(key);
    this.#underWay.end(offer.underWay);
    this.#underWay.onMoved(offer.bytes);
    offer.release();
  }

  /** The peer reports that it has read `bytes` more bytes. Returns the fault of this report, or "". */
  onPulling(bytes: number): string {
    this.#readBytes += bytes;
    if (bytes === 0) return "pulling counts no bytes";
    if (this.#readBytes > this.#offeredBytes)
      return `pulling counts ${this.#readBytes} bytes, and ${this.#offeredBytes} were offered`;
    this.#underWay.onMoved(bytes);
    return "";
  }

  /**
   * The time for which the oldest body is kept at `nowMs`, in milliseconds, if the peer moves too little. Otherwise 0.
   */
  overdueMs(nowMs: number): number {
    return this.#underWay.overdueMs(nowMs, this.#services.limits.maxBodyStallMs);
  }

  /** The session has ended: returns the grants of the kept bodies. */
  end(): Grant[] {
    const grants = [...this.kept.values()];
    this.kept.clear();
    this.#items.clear();
    return grants;
  }
}
