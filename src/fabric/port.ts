/*
 * The room `fabric`: ports, which send messages and move memory: over libfabric by the addon, on Node's sockets, in
 * one process.
 * Promises: each posted operation completes once, with a status. A message arrives whole or is reported lost. All
 * ports behave alike.
 * Takes: clocks, counters and errors from `base`.
 */

import type { NativeProcess } from "./libfabric/addon.ts";
import type { PortDescription } from "./libfabric/port-report.ts";
import type { Scheme } from "./libfabric/url.ts";
import type { Target } from "./target.ts";

/**
 * Bits of the access of `register`: the rights of peers. `local`: only this port uses the memory. `source`: this port
 * only sends from there.
 */
export const access = { local: 0, remoteRead: 1, remoteWrite: 2, source: 4 } as const;

/** Gets the completion of a posted message. */
export interface SendListener {
  /**
   * `status` is 0, or a positive error number of libfabric; `detail` is the provider's own number beside it. The slot is
   * free when this is called.
   */
  onSent(status: number, detail?: number): void;
  /**
   * The peer takes no messages now, and many slots are taken: the message waits elsewhere, and its slot is free.
   * `onSent` follows.
   */
  onParked?(): void;
}

/** Named from the side that posts it: `read` pulls (a get), `write` pushes (a put). */
export type TransferOp = "read" | "write";

/** The unit of posted work: contiguous bytes between a local registration and a peer's memory. */
export interface Extent {
  readonly local: RegisteredMemory;
  /** Offset of the first byte in the local registration. */
  readonly offset: number;
  /** At least 1. */
  readonly bytes: number;
  /** The key of the peer's memory. `remote` is the provider's address of the first byte there. */
  readonly key: bigint;
  readonly remote: bigint;
}

/** Gets the completion of a posted transfer. */
export interface TransferListener {
  /**
   * `status` is 0, or a positive error number of libfabric. At least `bytes` moved. The provider no longer touches the
   * memory.
   */
  onTransferred(status: number, bytes: number): void;
}

/** Receives what arrives at a port. */
export interface PortSink {
  /** A message arrived. Its `bytes` bytes lie at `offset` of the slab until this returns. */
  onMessage(port: Port, offset: number, bytes: number): void;
  /** A message was lost: it was longer than a slot, or the provider failed. */
  onMessageLost(port: Port, status: number): void;
  /** A peer's write with a put notification is complete. `bytes` is 0 if the provider does not report the length. */
  onPutNotification(port: Port, data: bigint, bytes: number): void;
  /** The process behind an address is certainly gone: the provider or the doorbell reported it. */
  onPeerGone(port: Port, address: number): void;
  /** The port did not keep connections of others. `counts` holds all since it opened. */
  onTurnedAway?(port: Port, counts: TurnedAway): void;
  /**
   * The connection with the peer behind an address has ended, and everything that came through it was delivered. The
   * peer may live, and the last messages to it may be lost. Only where the end is known: over tcp.
   */
  onDisconnected?(port: Port, address: number): void;
  /** All entries of the ports were delivered. True: the sink has deferred some work, and needs another turn soon. */
  onTurnEnd?(): boolean;
}

/** Ignores everything. */
export const nobody: PortSink = {
  onMessage() {},
  onMessageLost() {},
  onPutNotification() {},
  onPeerGone() {},
};

/** Incoming connections that a tcp port did not keep, since it opened. */
export interface TurnedAway {
  /** Refused, because the process had no file descriptor left. */
  readonly refused: number;
  /** Ended, because what came was not the fabric's protocol. */
  readonly malformed: number;
}

/** The message that the guard sends to a peer while this thread is absent: its event loop is blocked. */
export interface Vouch {
  /** The bytes 8 to 15 of every message of this peer. No other peer's messages have them. */
  readonly mark: Uint8Array;
  /** The complete message, at most 64 bytes. */
  readonly message: Uint8Array;
  /** The interval between messages to a peer that has sent something. The first one is sent at once. */
  readonly everyMs: number;
  /** How long the guard sends messages in one absence. */
  readonly forMs: number;
  /**
   * Seals each message that the guard sends (src/security/sealing/sealed-message.ts has the layout). A native port
   * takes ownership of the cipher, so that no count of it is used twice.
   */
  readonly seal: NativeCipher | undefined;
}

/** A cipher of the addon. Its owner can give it away. */
export interface NativeCipher {
  /** Gives the addon's handle to a new owner and returns it. -1: the cipher is not of the addon. */
  release(): number;
}

/**
 * Absences of this thread that the guard of a port noticed: longer than a few milliseconds, while a peer had a session
 * or a grant at the port.
 */
export interface Absences {
  readonly count: number;
  readonly totalMs: number;
  readonly longestMs: number;
}

export const noAbsences: Absences = { count: 0, totalMs: 0, longestMs: 0 };

/** Memory that is registered at a port. */
export interface RegisteredMemory {
  readonly index: number;
  /** The key that a peer must present. */
  readonly key: bigint;
  /** The provider's address of the first byte. A peer adds its offset. */
  readonly base: bigint;
}

/** The address of an endpoint, and the address for its answers. */
export interface Route {
  /** The raw fabric address for `admit`. */
  readonly address: Uint8Array;
  /** The raw address at which the endpoint reaches this port. */
  readonly replyTo: Uint8Array;
}

/**
 * One endpoint on one provider. Messages go through the slots of a slab, reads and writes are one-sided, and
 * completions come through a ring. All other layers treat native ports and the mem port alike. The thread that opened
 * the port calls all its functions. While the thread is absent, a native port continues posted work, and keeps what
 * arrives for the next `progress` (docs/design/guard.md). Functions that fail throw an RpcError with the detail of the
 * fabric. Errors of posted work arrive as a status.
 */
export interface Port {
  readonly scheme: Scheme;
  /** libfabric's name of the provider: "shm", "tcp", "net", "verbs;ofi_rxm"; or "mem", "node:net". */
  readonly provider: string;
  /** For logs: "libfabric/1.17 net/1.0". */
  readonly agent: string;
  /** The URL at which the port listens or can be reached. */
  readonly url: string;
  /** Send slots, then receive slots, `slotBytes` each. */
  readonly slab: Buffer;
  readonly slabView: DataView;
  readonly slotBytes: number;
  /**
   * How many frames are worth waiting for before a message leaves. Short batches are best where a message is cheap,
   * because both sides work at once. Long ones are best where a message costs a system call.
   */
  readonly batchFrames: number;
  /** The most bytes of one transfer, over all its extents. */
  readonly maxTransferBytes: number;
  /** The most extents of one transfer. */
  readonly maxExtents: number;
  /**
   * The bytes of a put notification that a write can carry: 8, or 0 if the provider has no such writes or does not
   * report their length to the target.
   */
  readonly immediateBytes: number;
  /** Whether the port reports the death of a peer at once. */
  readonly reportsDeath: boolean;
  /**
   * Whether a withdrawn key is dead for every peer, and `onReleased` means that no transfer uses it. If false (tcp
   * without a watch over its sockets), a transfer that has begun may continue. Then only the peer's message, or the end
   * of the peer, is certain.
   */
  readonly revokesKeys: boolean;
  /** How many addresses can be in use at once: as many as the queues of the provider hold (verbs), or Infinity. */
  readonly maxPeers: number;
  /** Whether the provider breaks the connection without a reason when it refuses a transfer (tcp, verbs). */
  readonly refusesSilently: boolean;

  /** Whether events of the loop make all its progress. Polling such a port finds no further entries. */
  readonly isEventDriven: boolean;

  /** How many messages the port has received. Its completions count them. */
  received: number;

  /**
   * The route to a target with the scheme of this port. A port that must connect for it takes at most `timeoutMs`.
   * @throws RpcError when the target is not reached.
   */
  route(target: Target, timeoutMs?: number): Route | Promise<Route>;
  /**
   * Adds an address and returns its index, for `send`.
   * @throws RpcError `unavailable` when certainly no endpoint is there.
   */
  admit(address: Uint8Array): number;
  /** Removes an address. Work that waits for it ends with an error. */
  forget(address: number): void;
  /**
   * A number that grows when bytes of the peer come before a whole message, such as those of transfers. Constant where
   * such bytes prove no living process: RMA of shared memory and devices continues while the peer stands still.
   */
  heard(address: number): number;
  /** The process behind an address, where the kernel says who it is: over shm. */
  processOf(address: number): NativeProcess | undefined;

  /**
   * Makes the guard answer the peer behind an address while this thread is absent, until `unvouch` or `forget`. A
   * provider that cannot inject the message answers no peer. Neither does a mem port, whose peers are on the same
   * thread.
   */
  vouch(address: number, vouch: Vouch): void;
  unvouch(address: number): void;
  absences(): Absences;

  /**
   * Takes a free send slot and returns its offset in the slab. -1: no slot is free for a sender that holds `held`
   * slots.
   */
  takeSlot(held?: number): number;
  returnSlot(offset: number): void;
  /**
   * Sends from a taken slot, and owns the slot until `listener` is called. If the queue is full, sends wait in order.
   */
  send(address: number, slot: number, bytes: number, listener: SendListener): void;

  /**
   * Registers memory for peers, or for transfers of this side. `holder`: the address of the only peer that gets the
   * key. Undefined for several holders, or for no holder: then the withdrawal waits for every peer.
   */
  register(
    memory: ArrayBufferLike,
    byteOffset: number,
    byteLength: number,
    access: number,
    holder?: number,
  ): RegisteredMemory;
  /**
   * Withdraws the memory: its key is refused from now on. Calls `onReleased`, now or later, when this port no longer
   * touches the memory. With `revokesKeys`, no peer touches it either.
   */
  deregister(index: number, onReleased?: () => void): void;
  /**
   * Reads into, or writes from, local registrations, with one completion for all extents. A write completes when the
   * data is in place at the peer.
   */
  transfer(
    op: TransferOp,
    address: number,
    extents: readonly Extent[],
    listener: TransferListener,
    /** The put notification for the target. Only for writes of at most 4 extents, if `immediateBytes` is 8. */
    notification?: bigint,
  ): void;

  /**
   * Makes progress, and delivers entries to `sink`. Spins for at most `spinUs` if there are no entries. Returns the
   * number of entries.
   */
  progress(spinUs: number, sink: PortSink): number;
  /**
   * Microseconds that spins waited to get the processor back after they yielded it, mod 2^32. Short waits do not count.
   */
  readonly spinLostUs: number;
  /** How many spins ended with an entry, mod 2^32. */
  readonly spinCaught: number;
  /**
   * Puts the port to sleep. True: `onWake` follows. False: there is work to do. Sent messages are no such work: their
   * listeners are called before this returns.
   */
  arm(): boolean;
  /**
   * Wakes the port without `onWake`. `watches`: the event loop keeps watching for what arrives, because `arm` follows
   * soon. That saves two system calls, but each turn of the loop then looks.
   */
  disarm(watches?: boolean): void;
  /** Called once after a successful `arm`. `Progress` sets it. */
  onWake: () => void;
  /** Whether a sleeping port keeps the process alive. */
  setRef(keepsProcessAlive: boolean): void;
  /** Whether posted work needs progress. */
  readonly busy: boolean;

  gauges(): PortGauges;
  /** For `engine.stats()`. */
  describe(): PortDescription;
  /** Closes the port at once. Safe to call twice. */
  close(): void;
}

/** What a port holds. At rest all are zero, except `addresses`; without peers all are zero. */
export interface PortGauges {
  readonly sends: number;
  readonly transfers: number;
  readonly regions: number;
  readonly addresses: number;
  readonly freeSlots: number;
}

/** The memory of a port for messages. It is registered once. */
export interface PortLayout {
  /** The longest message in bytes. Two peers use the smaller of their values. */
  readonly slotBytes: number;
  readonly sendSlots: number;
  readonly receiveSlots: number;
  /** TCP connections that others may make. Default: any number. */
  readonly maxConnections?: number;
  /** How long a TCP connection of an unknown peer is kept, in milliseconds. Default: without a limit. */
  readonly maxIdleConnectionMs?: number;
  /** The engine has the option `security`. Default: false. */
  readonly secured?: boolean;
}

/**
 * 16 KiB hold a hundred small frames, enough for batching. 64 + 256 slots take 5 MiB for each port, as far as messages
 * have touched them.
 */
export const defaultLayout: PortLayout = { slotBytes: 16 * 1024, sendSlots: 64, receiveSlots: 256 };

/**
 * The eager limit by transport: a body that fits a slot travels in its message, a longer one by rendezvous. The limits
 * come from measurements: below them a message was faster, with one call in flight and with many (docs/design/bulk.md).
 * Devices keep the default, because they pin every slot when the port opens.
 */
const slotBytes: Readonly<Partial<Record<Scheme, number>>> = {
  mem: 32 * 1024,
  shm: 32 * 1024,
  tcp: 64 * 1024,
  net: 64 * 1024,
  "net+unix": 64 * 1024,
  "net+pipe": 64 * 1024,
};

export const layoutFor = (scheme: Scheme): PortLayout => ({
  ...defaultLayout,
  slotBytes: slotBytes[scheme] ?? defaultLayout.slotBytes,
});
