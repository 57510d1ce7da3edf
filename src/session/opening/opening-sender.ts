import type { Port, SendListener } from "../../fabric/port.ts";
import type { Flushable, Turns } from "../../fabric/progress.ts";

/** Sends the few messages of an opening, in order. What finds no send slot waits for one; their owner bounds them. */
export class OpeningSender implements SendListener, Flushable {
  readonly #port: Port;
  readonly #address: number;
  readonly #progress: Turns;
  readonly #onFailed: (status: number) => void;
  #waiting: Uint8Array[] = [];
  #posted = 0;
  /** Nothing is taken any more; called when the last message has left. */
  #onDrained: (() => void) | undefined;
  flushQueued = false;

  /** `onFailed` is called when a message could not be delivered, with libfabric's error number. */
  constructor(port: Port, address: number, progress: Turns, onFailed: (status: number) => void) {
    this.#port = port;
    this.#address = address;
    this.#progress = progress;
    this.#onFailed = onFailed;
  }

  send(message: Uint8Array): void {
    if (this.#onDrained !== undefined) return;
    this.#waiting.push(message);
    this.flush();
    this.#progress.wake();
  }

  flush(): boolean {
    const before = this.#posted;
    for (;;) {
      const [message] = this.#waiting;
      if (message === undefined) break;
      const slot = this.#port.takeSlot(this.#posted);
      if (slot < 0) {
        this.#progress.flushSoon(this);
        break;
      }
      this.#waiting.shift();
      this.#port.slab.set(message, slot);
      this.#posted++;
      this.#port.send(this.#address, slot, message.byteLength, this);
    }
    return this.#posted !== before;
  }

  onSent(status: number): void {
    this.#posted--;
    if (status !== 0) {
      this.#waiting = [];
      if (this.#onDrained === undefined) this.#onFailed(status);
    }
    this.#drained();
  }

  /** Sends nothing but what waits, unless that is dropped, and calls `onDrained` when it has left. */
  close(onDrained: () => void, dropsWaiting = false): void {
    this.#onDrained ??= onDrained;
    if (dropsWaiting) this.#waiting = [];
    this.#drained();
  }

  #drained(): void {
    if (this.#posted > 0 || this.#waiting.length > 0) return;
    const drained = this.#onDrained;
    this.#onDrained = () => {};
    if (drained === undefined) this.#onDrained = undefined;
    else drained();
  }
}
