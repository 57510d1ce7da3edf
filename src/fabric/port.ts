import type { PortDescription } from "./port-queues.ts";
import type { Target } from "./target.ts";
import type { Scheme } from "./url.ts";

/** Bits of `register`'s access: what peers may do. None: local source or destination only. */
export const access = { local: 0, remoteRead: 1, remoteWrite: 2 } as const;

/** Who gets told how a posted message ended. */
export interface SendOwner {
  /** `status` is 0, or libfabric's positive error number. Its slot is free again when this is called. */
  onSent(status: number): void;
}

/** Seen from the side that acts: `read` pulls (a get), `write` pushes (a put). */
export type TransferOp = "read" | "write";

/** One piece of a one-sided transfer: so many bytes between a local registration and a peer's memory. */
export interface Extent {
  readonly local: RegisteredMemory;
  /** First byte in the local registration. */
  readonly offset: number;
  /** At least 1. */
  readonly bytes: number;
  /** What the peer gave out for its memory, and the provider's address of the first byte there. */
  readonly key: bigint;
  readonly remote: bigint;
}

/** Who gets told how a posted transfer ended. */
export interface TransferOwner {
  /**
   * `status` is 0, or libfabric's positive error number; `bytes` surely moved. The provider touches none of the memory any more.
   */
  onTransferred(status: number, bytes: number): void;
}

/** Who gets what arrives at a port. */
export interface PortSink {
  /** A message of `bytes` bytes lies at `offset` of the slab, until this returns. */
  onMessage(port: Port, offset: number, bytes: number): void;
  /** A message was lost on the way in: longer than a slot, or the provider's own trouble. */
  onMessageLost(port: Port, status: number): void;
  /** A peer's write with a notice is in place. `bytes` were written; 0 where the provider does not say. */
  onNotice(port: Port, data: bigint, bytes: number): void;
  /** The process behind an address is gone, as the provider (or the doorbell) knows for certain. */
  onPeerGone(port: Port, address: number): void;
}

/** What is said to a peer when this thread is absent: it computes, and does not come to make progress. */
export interface Vouch {
  /** The eight bytes from byte 8 on that the peer's messages, and nobody else's, carry. */
  readonly mark: Uint8Array;
  /** A whole message, of 64 bytes at most. */
  readonly message: Uint8Array;
  /** How often it is said to a peer that has sent something meanwhile, after the first time, which is at once. */
  readonly everyMs: number;
  /** For how long of one absence. */
  readonly forMs: number;
}

/** How often this thread was absent, as far as a port's guard has noticed: while peers had a session or memory of the port's, and for more than a few milliseconds. */
export interface Absences {
  readonly count: number;
  readonly totalMs: number;
  readonly longestMs: number;
}

export const noAbsences: Absences = { count: 0, totalMs: 0, longestMs: 0 };

/** Memory made known to a port. */
export interface RegisteredMemory {
  readonly index: number;
  /** What a peer must present. */
  readonly key: bigint;
  /** What a peer adds its offset to. */
  readonly base: bigint;
}

/** The way to an endpoint, and the way back. */
export interface Route {
  /** Raw fabric address to `admit`. */
  readonly address: Uint8Array;
  /** Our own raw address as the other side reaches it. */
  readonly replyTo: Uint8Array;
}

/**
 * One endpoint on one provider: messages through slots of a slab, one-sided reads and writes, completions through a ring.
 * Native ports and the mem port are the same to everything above. All of it happens on the thread that opened the port; while that is absent, a native
 * port goes on moving what it has been given, and keeps what arrives for the next `progress` (docs/design/guard.md).
 * Functions that may fail throw RpcError with the fabric's detail; errors of posted work arrive as a status.
 */
export interface Port {
  readonly scheme: Scheme;
  /** The provider's own name: "shm", "tcp", "net", "tcp;ofi_rxm", "verbs;ofi_rxm", "mem". */
  readonly provider: string;
  /** "libfabric/1.17 net/1.0" and the like, for people. */
  readonly agent: string;
  /** Where it listens or could be reached. */
  readonly url: string;
  /** Send slots, then receive slots, `slotBytes` each. */
  readonly slab: Buffer;
  readonly slabView: DataView;
  readonly slotBytes: number;
  /**
   * How many frames are worth waiting for before a message leaves. Where a message is cheap, short batches let both sides work at once; where it
   * costs a system call, long ones do.
   */
  readonly batchFrames: number;
  /** The most bytes of one transfer, over all its extents. */
  readonly maxTransferBytes: number;
  /** The most extents of one transfer. */
  readonly maxExtents: number;
  /** How many bytes of notice a write can carry to its target: 8, or 0 where there are no such writes or the target is not told how long they were. */
  readonly immediateBytes: number;
  /** True if death of a peer is told at once. */
  readonly reportsDeath: boolean;
  /**
   * True if a deregistered key is dead for every peer, and `onReleased` means that nobody is in the middle of using it. Where it is false
   * (tcp) a transfer that had begun may go on: only the peer's word, or its end, is certain.
   */
  readonly revokesKeys: boolean;
  /** How many addresses may be in use at once: what the provider's queues have room for (verbs), or Infinity. */
  readonly maxPeers: number;
  /** True if a transfer that its owner refuses breaks the connection, and why is for the owner to say (tcp, verbs). */
  readonly refusesSilently: boolean;

  /** The way to a target of this port's scheme. */
  route(target: Target): Route;
  /** Makes an address sendable; its index. Throws `unavailable` when provably nobody is there. */
  admit(address: Uint8Array): number;
  /** Gives the index back; what waits for it ends with an error. */
  forget(address: number): void;

  /**
   * Has the port answer the peer behind an address while this thread is absent, until `unvouch` or `forget`; a provider that cannot send such a message
   * at once answers nobody. Nor does a mem port: whoever could ask is on the same thread.
   */
  vouch(address: number, vouch: Vouch): void;
  unvouch(address: number): void;
  absences(): Absences;

  /** A free send slot's offset in the slab, or -1: there is none for one who holds `held` already. */
  takeSlot(held?: number): number;
  returnSlot(offset: number): void;
  /** Sends from a taken slot and takes ownership of it until `owner` hears. A full queue makes it wait, in order. */
  send(address: number, slot: number, bytes: number, owner: SendOwner): void;

  register(memory: ArrayBufferLike, byteOffset: number, byteLength: number, access: number): RegisteredMemory;
  /**
   * Withdraws the memory: its key is refused from now on. Calls `onReleased` when neither this port nor, as far as the port can tell
   * (`revokesKeys`), a peer touches it any more: before this returns, or later.
   */
  deregister(index: number, onReleased?: () => void): void;
  /** Pulls remote memory into, or pushes it from, local registrations: one completion for all extents. A write completes when the data is in place. */
  transfer(
    op: TransferOp,
    address: number,
    extents: readonly Extent[],
    owner: TransferOwner,
    /** Tells the target's sink. Writes of at most 4 extents, where `immediateBytes` is 8; others end with an error. */
    notice?: bigint,
  ): void;

  /** Makes progress, spinning at most `spinUs` when there is nothing, and hands what came to `sink`. The number of entries. */
  progress(spinUs: number, sink: PortSink): number;
  /** How long in all spins have waited for the processor that they gave away; moments do not count. Mod 2^32. */
  readonly spinLostUs: number;
  /** How many spins met what they waited for. Mod 2^32. */
  readonly spinCaught: number;
  /** True when asleep: `onWake` follows. False when there is something to do. */
  arm(): boolean;
  disarm(): void;
  /** Called once after a successful `arm`. Set by whoever drives progress. */
  onWake: () => void;
  /** Whether a sleeping port keeps the process alive. */
  setRef(keepsProcessAlive: boolean): void;
  /** True while posted work wants progress to be made. */
  readonly busy: boolean;

  gauges(): PortGauges;
  /** For statistics: asked for seldom. */
  describe(): PortDescription;
  /** Ends everything at once. Idempotent. */
  close(): void;
}

/** What a port holds; all zero but `addresses` at rest, all zero after its peers are gone. */
export interface PortGauges {
  readonly sends: number;
  readonly transfers: number;
  readonly regions: number;
  readonly addresses: number;
  readonly freeSlots: number;
}
