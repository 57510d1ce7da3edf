import { totalmem } from "node:os";
import { getHeapStatistics } from "node:v8";
import { maxTimeoutMs } from "../options/options.ts";

/**
 * Limits of the resources that an engine holds for itself and for its peers. All are finite. Limits of memory derive
 * from `memoryBytes`, so that their sum is within it. Six can be set (`LimitOptions`): then such a limit applies as it
 * is, and the sum may exceed `memoryBytes`. The numbers below are those with a budget of 10 GiB. That is the default
 * budget with a heap limit of 4 GiB on a machine of 20 GiB or more.
 */
export interface EngineLimits {
  /**
   * The memory budget in bytes: the memory that peers and the pool can make this engine hold, without the memory of
   * handlers. At least 64 MiB. Default: half of the memory that the process may use (the container's limit, or the
   * machine's memory), or 2.5 times V8's heap limit if that is less. Several engines of one process divide the half
   * with `memoryShare`.
   */
  readonly memoryBytes: number;
  /**
   * The longest body that is accepted or sent, rendezvous or not, in bytes. Default: a twentieth of `memoryBytes`,
   * 512 MiB at most.
   */
  readonly maxBodyBytes: number;
  /**
   * Memory that one body may take once it is decoded, in bytes of V8's heap, by estimate. Elements of binary and typed
   * arrays do not count. A request that takes more fails with `resource_exhausted` and does not run; so does a call
   * with an answer that takes more. It also bounds how long decoding blocks the event loop: some 10 ns a byte. Default:
   * an eightieth of `memoryBytes`, a thirty-second of V8's heap limit, or 64 MiB, whichever is least.
   */
  readonly maxValueBytes: number;
  /**
   * Memory of decoded inputs until their calls are answered, and of the service tables of peers, in bytes of V8's heap,
   * over all sessions. One peer gets no more than it leaves for the others, and 64 KiB always. Further requests fail
   * with `resource_exhausted`. A tenth of `memoryBytes`, or a quarter of V8's heap limit if that is less.
   */
  readonly maxDecodedBytes: number;
  /**
   * Bytes over all sessions: of rendezvous bodies being pulled, of inputs of more than 4 KiB until their calls are
   * answered, and of chunks of byte streams that handlers have open. Requests beyond it fail with `resource_exhausted`.
   * One peer gets no more than it leaves for the others: half at most. A tenth of `memoryBytes`, 1 GiB.
   */
  readonly maxPullBytes: number;
  /**
   * Bytes of rendezvous bodies kept for peers that have not pulled them yet, over all sessions. One peer gets no more
   * than it leaves for the others: half at most. A tenth of `memoryBytes`, 1 GiB.
   */
  readonly maxOfferBytes: number;
  /**
   * How long a peer may move no bytes of the rendezvous bodies that it offers or is offered, in milliseconds. Then its
   * session ends with `unavailable`. Each MiB that it moves extends the time by the same length, and fewer bytes by
   * their share. No body is kept for more than 64 times as long. Ten times `heartbeatMs`, 10,000 at least.
   */
  readonly maxBodyStallMs: number;
  /**
   * Bytes in the windows of all streams with items that arrive here. One peer gets no more than it leaves for the
   * others: half at most. Further streams get smaller windows, down to 8 KiB, which is always granted. A fortieth
   * of `memoryBytes`, 256 MiB.
   */
  readonly maxStreamBytes: number;
  /** Requests that one peer may have in flight here. Default: a quarter of `maxRequestsInAll`, 4096 at most. */
  readonly maxRequests: number;
  /**
   * Requests that all peers together may have in flight here; they share it. Further requests are rejected with
   * `resource_exhausted`. Up to sixteen for each session are accepted in addition, at most half of the limit. Peers
   * that fill the limit therefore cannot lock out others. One for each 160 KiB of `memoryBytes`, 65,536; at least
   * `maxRequests`.
   */
  readonly maxRequestsInAll: number;
  /**
   * Encoded frames that wait in a session's outbox, in bytes. Beyond that calls fail with `resource_exhausted`. A
   * quarter of `maxQueuedBytesInAll`, 8 MiB at most.
   */
  readonly maxQueuedBytes: number;
  /**
   * Encoded frames that wait to be sent, in bytes, over all sessions. One peer gets no more than it leaves for the
   * others; a peer that receives nothing and exceeds that is disconnected. A twentieth of `memoryBytes`, 512 MiB.
   */
  readonly maxQueuedBytesInAll: number;
  /**
   * Bytes in the slabs of the pool, taken and free. Beyond the limit `pool.take` throws `resource_exhausted`. Default: a
   * tenth of `memoryBytes`, 1 GiB.
   */
  readonly maxPoolBytes: number;
  /**
   * Connections that others may make to a TCP port. Beyond that, connections without a session end first. Then those
   * that have been idle longest end, with their sessions. Twice `maxSessions`.
   */
  readonly maxConnections: number;
  /**
   * How long a TCP connection without a session is kept, even if it sends bytes, in milliseconds. Thirty times
   * `heartbeatMs`, 30,000 at least.
   */
  readonly maxIdleConnectionMs: number;
  /** Sessions of an engine. Default: one for each MiB of `memoryBytes`, 1024 at most. */
  readonly maxSessions: number;
  /**
   * Sessions that one peer, which is one endpoint, may open to this engine. A quarter of the default of `maxSessions`,
   * 64 at most; or a quarter of a larger `maxSessions`.
   */
  readonly maxSessionsByPeer: number;
  /**
   * Running calls of methods with `replay`, and calls with kept responses, over all callers. One for each 640 KiB of
   * `memoryBytes`, 16,384.
   */
  readonly maxReplayCalls: number;
  /** Bytes of the kept responses. A hundred-and-sixtieth of `memoryBytes`, 64 MiB. */
  readonly maxReplayBytes: number;
  /**
   * How long a response is kept for a caller that has not confirmed it, and how long a handler runs without a waiting
   * caller, in milliseconds. Sixty times `heartbeatMs`, 60,000 at least.
   */
  readonly maxReplayMs: number;
}

/**
 * The limits that can be set. The first five suffice for most engines (docs/guide/limits.md). `maxValueBytes` bounds how
 * long one value blocks the event loop, which more memory does not change. The others follow these and `heartbeatMs`.
 */
export type LimitOptions = {
  readonly [K in SettableLimit]?: EngineLimits[K] | undefined;
};

export type SettableLimit =
  | "memoryBytes"
  | "maxBodyBytes"
  | "maxRequests"
  | "maxSessions"
  | "maxPoolBytes"
  | "maxValueBytes";

/** The part of `maxDecodedBytes` that each peer may always hold. */
export const leastDecodedBytes = 64 * 1024;

const kibi = 1024;
const mebi = 1024 * kibi;

/** The smallest budget. Below it hardly a body and a session fit beside the engine's own memory. */
export const leastMemoryBytes = 64 * mebi;

/** A budget is at most this many times V8's heap limit. Limits of heap memory then sum to at most 0.7 of the limit. */
const heapLimits = 2.5;

/** The memory that this process may use. */
export interface ProcessMemory {
  /** The limit of its container (cgroup), or the memory of the machine where that is less, in bytes. */
  readonly totalBytes: number;
  /** V8's heap limit of this thread, in bytes. */
  readonly heapBytes: number;
}

export function processMemory(): ProcessMemory {
  const machine = totalmem();
  // 0, or more than the machine has: there is no limit.
  const constrained = process.constrainedMemory();
  return {
    totalBytes: constrained > 0 ? Math.min(machine, constrained) : machine,
    heapBytes: getHeapStatistics().heap_size_limit,
  };
}

/**
 * `limits.memoryBytes` of one of several engines that divide a process's memory, each in its own thread. Call it in the
 * engine's thread, which has its own heap.
 *
 * @example
 * import { Engine } from "cinnabar";
 * import { memoryShare } from "cinnabar/options";
 *
 * const engine = await Engine.open({ limits: { memoryBytes: memoryShare(5) } }); // in each of five threads
 */
export function memoryShare(engines: number): number {
  return defaultMemoryBytes(processMemory(), engines);
}

/**
 * The default of `memoryBytes`. The other half of the process's memory is for Node.js, code, handlers and garbage.
 * `engines`: how many engines divide the process; each has its own heap.
 */
export function defaultMemoryBytes({ totalBytes, heapBytes }: ProcessMemory, engines = 1): number {
  return Math.max(leastMemoryBytes, Math.floor(Math.min(totalBytes / 2 / engines, heapLimits * heapBytes)));
}

/**
 * All limits of an engine with a budget of `memoryBytes` in a thread with a heap limit of `heapBytes`. Times follow a
 * slow heartbeat: a link that needs one needs more time for a body, too.
 */
export function deriveLimits(memoryBytes: number, heapBytes: number, heartbeatMs = 1000): EngineLimits {
  // Limits of memory in V8's heap also follow the heap, if the user set the budget.
  const heapBudget = Math.min(memoryBytes, heapLimits * heapBytes);
  const maxDecodedBytes = Math.floor(heapBudget / 10);
  const maxRequestsInAll = Math.floor(heapBudget / (160 * kibi));
  const maxQueuedBytesInAll = Math.floor(memoryBytes / 20);
  const maxSessions = Math.min(1024, Math.floor(heapBudget / mebi));
  // Whole, because ports take whole milliseconds.
  const heartbeats = (count: number): number =>
    Math.min(maxTimeoutMs, Math.ceil(count * Math.max(1000, heartbeatMs)));
  return {
    memoryBytes,
    maxBodyBytes: Math.min(512 * mebi, Math.floor(memoryBytes / 20)),
    maxValueBytes: Math.min(64 * mebi, Math.floor(maxDecodedBytes / 8)),
    maxDecodedBytes,
    maxPullBytes: Math.floor(memoryBytes / 10),
    maxOfferBytes: Math.floor(memoryBytes / 10),
    maxBodyStallMs: heartbeats(10),
    maxStreamBytes: Math.floor(memoryBytes / 40),
    maxRequests: Math.min(4096, Math.floor(maxRequestsInAll / 4)),
    maxRequestsInAll,
    maxQueuedBytes: Math.min(8 * mebi, Math.floor(maxQueuedBytesInAll / 4)),
    maxQueuedBytesInAll,
    maxPoolBytes: Math.floor(memoryBytes / 10),
    maxConnections: 2 * maxSessions,
    maxIdleConnectionMs: heartbeats(30),
    maxSessions,
    maxSessionsByPeer: Math.min(64, Math.floor(maxSessions / 4)),
    maxReplayCalls: Math.floor(heapBudget / (640 * kibi)),
    maxReplayBytes: Math.floor(memoryBytes / 160),
    maxReplayMs: heartbeats(60),
  };
}
