/** What an RDMA device has granted to the queues of one connection. It may be more than was asked for. */
export interface QueuePairAttributes {
  /** The queue pair's number on its device, and its peer's. */
  readonly number: number;
  readonly peerNumber: number;
  /** The largest packet on this connection's path. */
  readonly mtuBytes: number;
  readonly sendDepth: number;
  /** Of the queue that all connections of the port share, where `sharesReceives`; 0 where the device does not say (soft-iWARP). */
  readonly receiveDepth: number;
  readonly sharesReceives: boolean;
  /** Of the queue that its ends are told in; connections of a port share it. */
  readonly completionDepth: number;
  /** Pieces of memory that one send or receive takes. */
  readonly sendSegments: number;
  readonly receiveSegments: number;
  /** The longest message that travels inside its order to the device. */
  readonly inlineBytes: number;
}
