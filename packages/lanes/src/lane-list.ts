import type { Implementation } from "cinnabar/standard";
import { implement } from "cinnabar/standard";
import { LaneDirectory, type ListedLanes } from "./lanes-service.ts";

/** The list of lanes that a dispatcher serves: each watcher gets the newest one, and the next whenever it changes. */
export class LaneList {
  #list: ListedLanes = { urls: [], lanes: [] };
  #version = 0;
  #isEnded = false;
  /** What wakes the watchers that have seen the newest list. */
  readonly #waiting = new Set<() => void>();

  /** Its service. Watchers hold no place of the engine's admission: they stay for as long as their clients. */
  get implementation(): Implementation {
    return implement(LaneDirectory, { watch: (_, call) => this.#watch(call.signal) }, { admission: false });
  }

  post(list: ListedLanes): void {
    this.#list = list;
    this.#version++;
    this.#wake();
  }

  /** Ends the streams of all watchers, so that the engine has no open call of theirs when it drains. */
  end(): void {
    this.#isEnded = true;
    this.#wake();
  }

  async *#watch(signal: AbortSignal): AsyncGenerator<ListedLanes> {
    for (let seen = 0; !this.#isEnded && !signal.aborted; ) {
      if (seen === this.#version) await this.#changed(signal);
      else {
        seen = this.#version;
        yield this.#list;
      }
    }
  }

  #changed(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        this.#waiting.delete(done);
        signal.removeEventListener("abort", done);
        resolve();
      };
      this.#waiting.add(done);
      signal.addEventListener("abort", done);
    });
  }

  #wake(): void {
    for (const done of [...this.#waiting]) done();
  }
}
