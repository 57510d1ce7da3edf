/**
 * Memory that a lost peer may still touch: kept alive, and out of use, until it is certain that nobody can.
 *
 * A session lost for silence proves nothing about its process: stopped, it may wake and finish a copy. What it was lent stays here until its
 * process is known to be gone (shm tells) or the engine's ports are closed.
 */
export class Quarantine {
  readonly #held = new Set<Held>();
  #bytes = 0;

  /** How many bytes are held back now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Holds `bytes` bytes until the returned function is called, which runs `release`. */
  hold(bytes: number, release: () => void): () => void {
    const held: Held = { bytes, release };
    this.#held.add(held);
    this.#bytes += bytes;
    return () => this.#letGo(held);
  }

  /** Nobody can touch anything any more: the ports are closed. */
  releaseAll(): void {
    for (const held of this.#held) this.#letGo(held);
  }

  #letGo(held: Held): void {
    if (!this.#held.delete(held)) return;
    this.#bytes -= held.bytes;
    held.release();
  }
}

interface Held {
  readonly bytes: number;
  readonly release: () => void;
}
