import { channel } from "node:diagnostics_channel";
import { EventEmitter } from "node:events";

/** Events of groups on `node:diagnostics_channel`. Publishing costs nothing without subscribers. */
export const channels = {
  /** Another view: { group, view, joined, left }. */
  view: channel("cinnabar:group.view"),
  /** The failure detector's belief about a member has changed: { group, rank, status, previous }. */
  member: channel("cinnabar:group.member"),
  /** This process was removed from a group: { group, view }. */
  excluded: channel("cinnabar:group.excluded"),
  /** A collective was called here: { group, method, id, ranks }. */
  collectiveStarted: channel("cinnabar:group.collective-started"),
  /** It has ended: { group, method, id, ok, failed, repaired, tookMs }. `failed` has a failure with its rank for each. */
  collectiveEnded: channel("cinnabar:group.collective-ended"),
  /** This process calls the members below one that failed: { group, method, id, rank, adopted }. */
  collectiveRepaired: channel("cinnabar:group.collective-repaired"),
} as const;

/** Listeners to the events of a group, by name. What a listener throws is an uncaught exception and stops nothing. */
export class Listeners<Events> {
  readonly #events = new EventEmitter();

  /** The returned function removes the listener. */
  on<E extends keyof Events & string>(event: E, listener: (detail: Events[E]) => void): () => void {
    const entry = (detail: Events[E]) => {
      try {
        listener(detail);
      } catch (error) {
        process.nextTick(() => {
          throw error;
        });
      }
    };
    this.#events.on(event, entry);
    return () => void this.#events.off(event, entry);
  }

  tell<E extends keyof Events & string>(event: E, detail: Events[E]): void {
    this.#events.emit(event, detail);
  }

  clear(): void {
    this.#events.removeAllListeners();
  }
}
