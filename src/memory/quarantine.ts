import { coveredBytes } from "./exposable.ts";

/**
 * Memory that a lost peer may still touch. It stays alive and unused until no access is possible.
 *
 * A session that ended by silence proves nothing about its process: a stopped process may resume and finish a copy.
 * Reading counts too: the body of an answer must not be freed while the provider sends it, or another owner's bytes
 * would leave. Memory that was granted to the peer stays here until one of three events: the port says that no peer
 * uses it, the peer's process is known to be gone (shm reports that), or the engine's ports are closed.
 */
export class Quarantine {
  readonly #held = new Set<Held>();

  /** Bytes in quarantine now. Memory that was granted several times counts once. */
  get bytes(): number {
    return coveredBytes(this.#views());
  }

  /** Holds `memory` until the returned function is called, which calls `release`. */
  hold(memory: readonly Uint8Array[], release: () => void): () => void {
    const held: Held = { memory, release };
    this.#held.add(held);
    return () => this.#letGo(held);
  }

  /** Releases everything: the ports are closed, so no peer can touch the memory. */
  releaseAll(): void {
    for (const held of this.#held) this.#letGo(held);
  }

  *#views(): Iterable<Uint8Array> {
    for (const { memory } of this.#held) yield* memory;
  }

  #letGo(held: Held): void {
    if (this.#held.delete(held)) held.release();
  }
}

interface Held {
  readonly memory: readonly Uint8Array[];
  readonly release: () => void;
}
