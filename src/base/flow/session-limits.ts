import { getHeapStatistics } from "node:v8";

/** Limits on what peers can do to this process. All are finite. */
export interface SessionLimits {
  /** The longest body that is accepted or sent, rendezvous or not, in bytes. Default 512 MiB. */
  readonly maxBodyBytes: number;
  /**
   * Memory that one body may take once it is decoded, in bytes of V8's heap, by estimate. Elements of binary and typed
   * arrays do not count. A request that takes more fails with `resource_exhausted` and does not run; so does a call
   * whose answer takes more. It also bounds for how long decoding blocks the event loop: some 10 ns a byte. Default
   * 64 MiB, or an eighth of `maxDecodedBytes` if that is less.
   */
  readonly maxValueBytes: number;
  /**
   * Memory of decoded inputs until their calls are answered, and of the service tables of peers, in bytes of V8's heap,
   * over all sessions. One peer gets no more than it leaves for the others, and 64 KiB always. Further requests fail
   * with `resource_exhausted`. Default: a quarter of V8's heap limit.
   */
  readonly maxDecodedBytes: number;
  /**
   * Bytes over all sessions: of rendezvous bodies being pulled, of inputs of more than 4 KiB until their calls are
   * answered, and of chunks of byte streams that handlers have open. Requests beyond it fail with `resource_exhausted`.
   * One peer gets no more than it leaves for the others: half at most. Default 1 GiB.
   */
  readonly maxPullBytes: number;
  /**
   * Bytes of rendezvous bodies kept for peers that have not pulled them yet, over all sessions. One peer gets no more
   * than it leaves for the others: half at most. Default 1 GiB.
   */
  readonly maxOfferBytes: number;
  /**
   * How long a peer may move nothing of the rendezvous bodies that it offers or is offered, in milliseconds. Then its
   * session ends with `unavailable`. Each MiB that it moves gives it as long again, and fewer bytes give their share. No
   * body is kept for more than 64 times as long. Default 10,000.
   */
  readonly maxBodyStallMs: number;
  /**
   * Bytes in the windows of all streams whose items arrive here. One peer gets no more than it leaves for the others:
   * half at most. Further streams get smaller windows, down to 8 KiB, which is always granted. Default 256 MiB.
   */
  readonly maxStreamBytes: number;
  /** Requests that one peer may have in flight here. Default 4096. */
  readonly maxRequests: number;
  /**
   * Requests that all peers together may have in flight here; they share it. Further requests are rejected with
   * `resource_exhausted`. Sixteen for each session are accepted beside them, so that peers that fill the limit keep
   * nobody out; fewer where `maxSessions` of that are more than half of the limit. At least `maxRequests`. Default 65,536, or `maxRequests` if that is more.
   */
  readonly maxRequestsInAll: number;
  /**
   * Encoded frames that wait in a session's outbox, in bytes. Beyond that calls fail with `resource_exhausted`. Default
   * 8 MiB.
   */
  readonly maxQueuedBytes: number;
  /**
   * Encoded frames that wait to be sent, in bytes, over all sessions. One peer gets no more than it leaves for the
   * others; one that receives nothing and exceeds that is disconnected. Default 512 MiB.
   */
  readonly maxQueuedBytesInAll: number;
  /**
   * Connections that others may make to a TCP port. Beyond that, those end that belong to no session, and of the others
   * those that have been idle longest, with their sessions. Default 2048, or twice `maxSessions` if that is more.
   */
  readonly maxConnections: number;
  /** How long a TCP connection that belongs to no session may be idle, in milliseconds. Default 30,000. */
  readonly maxIdleConnectionMs: number;
  /** Sessions of an engine. Default 1024. */
  readonly maxSessions: number;
  /** Sessions that one peer, which is one endpoint, may open to this engine. Default 64. */
  readonly maxSessionsByPeer: number;
  /** Calls of methods with `replay` that run, or whose responses are kept, over all callers. Default 16,384. */
  readonly maxReplayCalls: number;
  /** Bytes of the kept responses. Default 64 MiB. */
  readonly maxReplayBytes: number;
  /**
   * How long a response is kept for a caller that has not confirmed it, and how long a handler runs that nobody waits
   * for, in milliseconds. Default 60,000.
   */
  readonly maxReplayMs: number;
}

/** What a peer may always hold of `maxDecodedBytes`. */
export const leastDecodedBytes = 64 * 1024;

const maxDecodedBytes = Math.floor(getHeapStatistics().heap_size_limit / 4);

export const defaultLimits: SessionLimits = {
  maxValueBytes: Math.min(64 * 1024 * 1024, Math.floor(maxDecodedBytes / 8)),
  maxDecodedBytes,
  maxBodyBytes: 512 * 1024 * 1024,
  maxPullBytes: 1024 * 1024 * 1024,
  maxOfferBytes: 1024 * 1024 * 1024,
  maxBodyStallMs: 10_000,
  maxStreamBytes: 256 * 1024 * 1024,
  maxRequests: 4096,
  maxRequestsInAll: 65_536,
  maxQueuedBytes: 8 * 1024 * 1024,
  maxQueuedBytesInAll: 512 * 1024 * 1024,
  maxConnections: 2048,
  maxIdleConnectionMs: 30_000,
  maxSessions: 1024,
  maxSessionsByPeer: 64,
  maxReplayCalls: 16_384,
  maxReplayBytes: 64 * 1024 * 1024,
  maxReplayMs: 60_000,
};
