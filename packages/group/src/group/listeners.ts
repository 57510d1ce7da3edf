import { EventEmitter } from "node:events";

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
