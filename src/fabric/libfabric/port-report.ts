/** Use of one queue, in entries: its depth, the entries in use now, and the highest number ever in use. */
export interface QueueLevel {
  readonly depth: number;
  readonly used: number;
  readonly highest: number;
}

/**
 * The queues of a port. A full queue applies backpressure and loses nothing: sends wait in their sessions, and arriving
 * messages wait at the peers or in the provider's buffers.
 */
export interface PortQueues {
  /** Outgoing messages: posted, or being filled. */
  readonly send: QueueLevel;
  /** Messages that arrived and are being read, or wait to be read. */
  readonly receive: QueueLevel;
  /**
   * Completions that wait to be read. Completions that find the queue full wait behind it; `used` counts them once they
   * left the provider.
   */
  readonly completion: QueueLevel;
  /**
   * Messages and transfers that the provider does not accept yet: its queues or the peer's are full, or the peer does
   * not respond.
   */
  readonly waiting: number;
}

/** Description of a port: its queues and what its provider granted. */
export interface PortDescription {
  readonly queues: PortQueues;
  /** Bytes registered with the provider, message slots included where it requires that. Over verbs they are pinned. */
  readonly registeredBytes: number;
  /** Registrations made since the port opened, and their bytes. Over verbs each pins its pages again. */
  readonly registrationsMade: number;
  readonly registrationsMadeBytes: number;
  /** Present for a port on libfabric. */
  readonly granted?: GrantedAttributes | undefined;
  /** Present for a port of shm or net, and for a tcp port with the patch `tcp-sockets`. */
  readonly connections?: ConnectionCounts | undefined;
}

/** Connections of a port: over shm the sockets by which ports meet. */
export interface ConnectionCounts {
  /** Open now, in both directions, including those that are being made. */
  readonly open: number;
  /** Incoming connections refused since the port opened, because the process had no file descriptor left. */
  readonly refused: number;
  /** Incoming connections ended since the port opened, because what came was not the fabric's protocol. */
  readonly malformed: number;
  /**
   * Connections ended since the port opened, for three reasons: there were more than `limits.maxConnections`; they had
   * unfinished messages while many others had, too; or they belonged to no session for `limits.maxIdleConnectionMs`.
   */
  readonly evicted: number;
}

/**
 * Attributes that the provider granted when the port opened (fi_getinfo(3)). 0 and "" stand for what it does not
 * report.
 */
export interface GrantedAttributes {
  /** The provider's domain name: over verbs the RDMA device ("mlx5_0"), over tcp the interface. */
  readonly device: string;
  /** Largest packet on the wire; RDMA devices only. */
  readonly mtuBytes: number;
  /** Operations that the provider can queue, towards all peers together. */
  readonly sendDepth: number;
  readonly receiveDepth: number;
  readonly completionDepth: number;
  /** Longest message that the provider sends without a completion (inject). */
  readonly injectBytes: number;
  readonly maxMessageBytes: number;
  /** Extents of one operation, locally and at the peer. */
  readonly localExtents: number;
  readonly remoteExtents: number;
}
