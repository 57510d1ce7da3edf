import type { RequestCredits } from "../../base/flow/request-credits.ts";

/** Granted credits that the peer has not confirmed yet. */
interface Told {
  readonly credits: number;
  readonly word: number;
  readonly atMs: number;
}

/** The most unconfirmed grants. Older grants are dropped; the last confirmed grant holds. */
const mostUnheard = 16;

/** Higher words of pings belong to the session. */
const mostWord = 0x7fff_ffff;

/**
 * The number of requests that a peer may have in flight: the last grant, or an earlier one while the peer has not
 * confirmed a lower grant. The peer confirms a grant when it echoes the ping that follows it. After `graceMs` an
 * unconfirmed grant holds too: no honest peer is silent for so long.
 */
export class GrantedCredits {
  readonly #engine: RequestCredits;
  readonly #graceMs: number;
  /** The last grant. The peer's first grant is in the greeting. */
  told: number;
  /** The number that the peer may rely on: requests beyond it are refused. */
  allowed: number;
  #unheard: Told[] = [];
  #word = 0;
  /** The grant is below the peer's share, because other peers held more than theirs. The end of a call may raise it. */
  isLimited = true;

  constructor(engine: RequestCredits, greeted: number, graceMs: number) {
    this.#engine = engine;
    this.told = greeted;
    this.allowed = greeted;
    this.#graceMs = graceMs;
  }

  /** The credits to grant now that each session's share is `share`. 0: no new grant. */
  toTell(share: number): number {
    const credits = this.isLimited ? Math.min(share, this.#engine.offer) : share;
    this.isLimited = credits < share;
    return credits === this.told ? 0 : credits;
  }

  /** The credits to grant to a peer below its share, because there may be room now. 0: no new grant. */
  toRaise(): number {
    if (!this.isLimited) return 0;
    const credits = this.#engine.offer;
    if (credits <= this.told) return 0;
    this.isLimited = credits < this.#engine.share;
    return credits;
  }

  /** Notes a grant of `credits`. Returns the word of the ping that must follow. 0: no ping. */
  onTold(credits: number, nowMs: number): number {
    const lowered = credits < this.allowed;
    this.told = credits;
    if (!lowered) {
      this.allowed = credits;
      this.#unheard = [];
      return 0;
    }
    this.#word = (this.#word % mostWord) + 1;
    if (this.#unheard.length === mostUnheard) this.#unheard.shift();
    this.#unheard.push({ credits, word: this.#word, atMs: nowMs });
    return this.#word;
  }

  /** The peer has received the grants before the ping with that word. */
  onEcho(word: number): void {
    const index = this.#unheard.findIndex((told) => told.word === word);
    if (index >= 0) this.#hear(index);
  }

  /** Whether a request may begin at `nowMs` beside `held` others. `held` has reached the last grant. */
  allows(held: number, nowMs: number): boolean {
    const index = this.#unheard.findLastIndex(({ atMs }) => atMs <= nowMs - this.#graceMs);
    if (index >= 0) this.#hear(index);
    return held < this.allowed;
  }

  #hear(index: number): void {
    const heard = this.#unheard[index] as Told;
    this.#unheard.splice(0, index + 1);
    this.allowed = Math.max(heard.credits, ...this.#unheard.map(({ credits }) => credits));
  }
}
