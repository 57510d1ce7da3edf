/**
 * Listeners by the name of what they listen for, typed by a map of names to what is told. In the order they came; one that is added or removed while others are told
 * counts from the next time on. What a listener throws becomes an uncaught exception, as with `node:diagnostics_channel`: it never reaches whoever tells.
 */
export class Listeners<Events extends object> {
  readonly #byEvent = new Map<keyof Events, Set<(detail: never) => void>>();

  /** Returns what takes the listener away. */
  on<E extends keyof Events>(event: E, listener: (detail: Events[E]) => void): () => void {
    let listeners = this.#byEvent.get(event);
    if (listeners === undefined) {
      listeners = new Set();
      this.#byEvent.set(event, listeners);
    }
    // A function of its own, so that one listener may be added twice and taken away once.
    const entry = (detail: Events[E]) => listener(detail);
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
