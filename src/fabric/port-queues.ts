import type { QueuePairAttributes } from "./queue-pair.ts";

/** How full a queue is, in entries: how many it has, how many are in use, and the most that ever were. */
export interface QueueLevel {
  readonly depth: number;
  readonly used: number;
  readonly highest: number;
}

/**
 * The queues of a port. A full one holds back whoever would fill it further, and loses nothing: sends wait in their sessions, what arrives waits at the
 * peers or in the provider's buffers.
 */
export interface PortQueues {
  /** Messages on their way out, or being filled. */
  readonly send: QueueLevel;
  /** Messages that have arrived and are being read, or wait to be. */
  readonly receive: QueueLevel;
  /** Ends of sends and transfers, and arrivals, that wait to be read. What a full queue does not take waits behind it, and counts in `used` as far as it has been taken from the provider. */
  readonly completion: QueueLevel;
  /** Messages and transfers that the provider does not take yet: its own queues are full, or the peer's are, or the peer does not answer. */
  readonly waiting: number;
}

/** What a port tells of itself beside what it holds. */
export interface PortDescription {
  readonly queues: PortQueues;
  /** Memory known to the provider, the message slots included where it wants those too. Over verbs it is pinned: see `rdma.md` for the whole process's. */
  readonly registeredBytes: number;
  /** Of a port on libfabric. */
  readonly granted?: GrantedAttributes | undefined;
  /** Of a verbs port. */
  readonly verbs?: VerbsDescription | undefined;
}

const none: QueueLevel = { depth: 0, used: 0, highest: 0 };

/** Of a port without queues; for tests. */
export const plainDescription: PortDescription = {
  queues: { send: none, receive: none, completion: none, waiting: 0 },
  registeredBytes: 0,
};

export interface VerbsDescription {
  /** "published" on the diagnostics channel `cinnabar:rdma.connection`; "not asked for" when nobody subscribed before the port was opened; or why they cannot be. */
  readonly connectionEvents: string;
  /** What the last connection on the port's device was granted, as far as its `established` was published. */
  readonly queuePair: QueuePairAttributes | undefined;
}

/** What the provider gave the port when it was opened (fi_getinfo(3)), as it says; 0 and "" for what it does not say. */
export interface GrantedAttributes {
  /** The provider's name of what the port is on: over verbs the RDMA device ("mlx5_0"), over tcp the interface. */
  readonly device: string;
  /** The largest packet on the wire, of RDMA devices. */
  readonly mtuBytes: number;
  /** Operations that the provider has room for, towards all peers together. */
  readonly sendDepth: number;
  readonly receiveDepth: number;
  readonly completionDepth: number;
  /** The longest message that the provider takes without a completion. */
  readonly injectBytes: number;
  readonly maxMessageBytes: number;
  /** Pieces of memory that one operation takes, here and at the peer. */
  readonly segments: number;
  readonly remoteSegments: number;
}
