import { AsyncResource } from "node:async_hooks";

/**
 * Typed event listeners, called in the order they were added. A listener that is added or removed during an event takes
 * effect with the next event. Each runs in the async context in which it was added. An error that a listener throws
 * becomes an uncaught exception, as with `node:diagnostics_channel`; it never reaches the emitter.
 */
export class Listeners<Events extends object> {
  readonly #byEvent = new Map<keyof Events, Set<(detail: never) => void>>();

  /** Adds a listener; the returned function removes it. */
  on<E extends keyof Events>(event: E, listener: (detail: Events[E]) => void): () => void {
    let listeners = this.#byEvent.get(event);
    if (listeners === undefined) {
      listeners = new Set();
      this.#byEvent.set(event, listeners);
    }
    // A new function, so that one listener may be added twice and removed once.
    const entry = AsyncResource.bind((detail: Events[E]) => listener(detail));
    listeners.add(entry);
    return () => void this.#byEvent.get(event)?.delete(entry);
  }

  tell<E extends keyof Events>(event: E, detail: Events[E]): void {
    const listeners = this.#byEvent.get(event);
    if (listeners === undefined) return;
    for (const listener of [...listeners]) {
      try {
        listener(detail as never);
      } catch (error) {
        process.nextTick(() => {
          throw error;
        });
      }
    }
  }

  clear(): void {
    this.#byEvent.clear();
  }
}
