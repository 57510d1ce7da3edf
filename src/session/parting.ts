import type { Clock } from "../call/clock.ts";

/** How long a goodbye waits for transfers under way: they are chunks, and over in milliseconds where the peer's side of them works. */
const patienceMs = 250;

interface PartingHost {
  readonly clock: Clock;
  readonly partings: Set<Parting>;
}

/**
 * Holds the goodbye of an ended session back while transfers of this side are under way in the peer's memory. Over tcp the peer learns of their end by
 * the goodbye alone: what it lent for them would stay in its quarantine for as long as it lives.
 */
export class Parting {
  readonly #host: PartingHost;
  readonly #say: (touching: boolean) => void;
  #underWay = 0;
  #cancel = () => {};

  /** `say` is called once: when nothing is under way any more (false), or when the peer must not wait any longer (true). */
  constructor(host: PartingHost, say: (touching: boolean) => void) {
    this.#host = host;
    this.#say = say;
  }

  /** So many were under way when the session ended; some may have ended by that alone. It is among the host's until it has been said. */
  begin(underWay: number): void {
    const { partings, clock } = this.#host;
    partings.add(this);
    this.#underWay += underWay;
    if (this.#underWay === 0) this.end();
    else this.#cancel = clock.timer(patienceMs, () => this.end());
  }

  /** One of those that were under way has ended. */
  onTransferEnded(): void {
    if (--this.#underWay === 0) this.end();
  }

  /** Says it now. */
  end(): void {
    if (!this.#host.partings.delete(this)) return;
    this.#cancel();
    this.#say(this.#underWay > 0);
  }
}
