import type { Observation } from "../authority/authority.ts";
import { Newest } from "../view/newest.ts";
import type { View } from "../view/view.ts";
import { persist, withTimeLimit } from "./gateway.ts";
import type { GroupKeys, GroupState } from "./group-keys.ts";

/** How soon a watch with a silently broken connection is noticed: after this time all is read again. */
const readAnewMs = 30_000;

/** Follows a group in etcd: reads its keys, then watches them, and begins anew whenever the watch ends. */
export class EtcdObservation implements Observation {
  protected readonly keys: GroupKeys;
  protected readonly ending = new AbortController();
  readonly #views: Newest<View>;
  #state: GroupState;
  #reading = new AbortController();
  #followed: Promise<void> | undefined;

  /** @param view of `state` */
  constructor(keys: GroupKeys, state: GroupState, view: View) {
    this.keys = keys;
    this.#state = state;
    this.#views = new Newest(view);
  }

  get view(): View {
    return this.#views.value;
  }

  views(): AsyncIterable<View> {
    return this.#views.read("next");
  }

  refresh(version: number): void {
    if (version > this.view.version) this.#reading.abort();
  }

  async close(): Promise<void> {
    this.end();
    await this.#followed;
  }

  /** Begins to follow. */
  start(): void {
    this.#followed ??= this.#follow();
  }

  /** What is known of the group. */
  protected get state(): GroupState {
    return this.#state;
  }

  /** There is another state. */
  protected onState(): void {}

  /** Stops following. With an error the authority has failed for ever. */
  protected end(error?: unknown): void {
    this.#views.end(error);
    this.ending.abort();
  }

  async #follow(): Promise<void> {
    const { signal } = this.ending;
    try {
      while (!signal.aborted) await persist(() => this.#readAndWatch(), signal);
    } catch (error) {
      if (!signal.aborted) this.end(error);
    }
  }

  async #readAndWatch(): Promise<void> {
    this.#reading = new AbortController();
    const { signal: refreshed } = this.#reading;
    await withTimeLimit(readAnewMs, [this.ending.signal, refreshed], async (signal) => {
      try {
        const { state, revision } = await this.keys.read(signal);
        this.#adopt(state);
        for await (const changes of this.keys.watch(revision + 1n, signal))
          this.#adopt(this.keys.after(this.#state, changes));
      } catch (error) {
        if (!signal.aborted) throw error;
      }
    });
  }

  #adopt(state: GroupState): void {
    // Another server of the cluster may be behind the one that was read before.
    if (state.viewRevision < this.#state.viewRevision) return;
    this.#state = state;
    const { view } = state;
    if (view !== undefined && view.version > this.view.version) this.#views.set(view);
    this.onState();
  }
}
