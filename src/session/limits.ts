/** What a session lets its peer do to this process. All finite. */
export interface SessionLimits {
  /** Longest body taken or sent, pulled or not, in bytes. Default 512 MiB. */
  readonly maxBodyBytes: number;
  /** Bytes of bodies being pulled at once, and of the chunks of callers' streams that handlers have open, over all sessions of an engine. Default 1 GiB. */
  readonly maxPullBytes: number;
  /** Bytes of bodies kept for peers that have not pulled them yet, over all sessions of an engine. Default 1 GiB. */
  readonly maxOfferBytes: number;
  /** Requests a peer may have in flight here. Default 4096. */
  readonly maxRequests: number;
  /** Requests all peers may have in flight here, shared among them; one beyond is refused with `resource_exhausted`. At least `maxRequests`. Default 65,536, or `maxRequests` where that is more. */
  readonly maxRequestsInAll: number;
  /** Encoded frames that wait for room in a session's outbox, in bytes; beyond it calls fail with `resource_exhausted`. Default 8 MiB. */
  readonly maxQueuedBytes: number;
  /** Sessions an engine holds at once. Default 1024. */
  readonly maxSessions: number;
  /** Calls of methods with `replay` that run, or whose answers are kept, over all callers of an engine. Default 16,384. */
  readonly maxReplayCalls: number;
  /** Bytes of their answers. Default 64 MiB. */
  readonly maxReplayBytes: number;
  /** How long an answer is kept for a caller that does not say it has it, and an execution goes on that nobody waits for, in milliseconds. Default 60,000. */
  readonly maxReplayMs: number;
}

export const defaultLimits: SessionLimits = {
  maxBodyBytes: 512 * 1024 * 1024,
  maxPullBytes: 1024 * 1024 * 1024,
  maxOfferBytes: 1024 * 1024 * 1024,
  maxRequests: 4096,
  maxRequestsInAll: 65_536,
  maxQueuedBytes: 8 * 1024 * 1024,
  maxSessions: 1024,
  maxReplayCalls: 16_384,
  maxReplayBytes: 64 * 1024 * 1024,
  maxReplayMs: 60_000,
};
