import { AbortableCall } from "./abort-watch.ts";

/**
 * Where a call stands of which nothing has left: see `OutgoingPhase`; `backoff`: it has failed and waits to be tried
 * again.
 */
export type UnsentPhase = "waiting" | "connecting" | "backoff";

/**
 * A call that was made here, as whoever lists calls sees it. It is armed in the engine's wheel until it has settled.
 */
export abstract class MadeCall extends AbortableCall {
  /** When it was made, on the engine's clock. */
  startedMs = 0;

  /** Undefined when a request of it has left: its session lists that. */
  abstract get unsentPhase(): UnsentPhase | undefined;

  /** Asked by an engine and not by a user: in no list, and counted nowhere. */
  get builtin(): boolean {
    return false;
  }

  /** `service/method`. */
  get methodPath(): string {
    return "";
  }

  /** Whom it is for, as far as it is known before a session is. */
  get peerName(): string {
    return "";
  }
}
