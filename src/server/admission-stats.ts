import type { Priority } from "../flow/priority.ts";

/**
 * Why a request was refused before its handler began: there was no room to wait (`full`); it waited, and a more urgent one needed its room (`pushed_out`); it had waited too long
 * (`age`); it could not have been answered by its deadline any more (`deadline`).
 */
export type ShedCause = "full" | "pushed_out" | "age" | "deadline";

/** What waits of one class. */
export interface QueuedClass {
  readonly calls: number;
  readonly bytes: number;
}

/** Who runs and who waits, where a limit on handlers is set; all zero where none is. */
export interface AdmissionStats {
  /** Handlers that run. */
  readonly running: number;
  /** Requests that wait for their turn, and the bytes of their inputs. */
  readonly queued: number;
  readonly queuedBytes: number;
  readonly queuedByPriority: Readonly<Record<Priority, QueuedClass>>;
  /** How long the one that has waited longest has waited, in milliseconds. */
  readonly longestWaitMs: number;
  /** Requests refused since the engine opened, by cause. */
  readonly shed: Readonly<Record<ShedCause, number>>;
  /** Places taken back from handlers that had not ended a second after their calls. They may still run. */
  readonly overdue: number;
}
