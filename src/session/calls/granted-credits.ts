import type { RequestCredits } from "../../base/flow/request-credits.ts";

/** Credits that were told, and of which the peer has not said yet that it has heard of them. */
interface Told {
  readonly credits: number;
  readonly word: number;
  readonly atMs: number;
}

/** So many grants may be unconfirmed. Older ones are dropped, and the last confirmed one holds. */
const mostUnheard = 16;

/** Higher words of pings are the session's own. */
const mostWord = 0x7fff_ffff;

/**
 * How many requests a peer may have in flight: what it was told last, or before, as long as it may not have heard of
 * less. It has heard when it echoes the ping that follows. A peer that never does is held to it all the same after
 * `graceMs`: no honest one is silent for so long.
 */
export class GrantedCredits {
  readonly #engine: RequestCredits;
  readonly #graceMs: number;
  /** What the peer was told last; at first its greeting says it. */
  told: number;
  /** What it may rely on: requests beyond this are refused. */
  allowed: number;
  #unheard: Told[] = [];
  #word = 0;
  /** It was told less than its share, since others held more than theirs: it may be told more when a call ends. */
  isLimited = true;

  constructor(engine: RequestCredits, greeted: number, graceMs: number) {
    this.#engine = engine;
    this.told = greeted;
    this.allowed = greeted;
    this.#graceMs = graceMs;
  }

  /** What to tell the peer now that each session's share is `share`; 0 for nothing. */
  toTell(share: number): number {
    const credits = this.isLimited ? Math.min(share, this.#engine.offer) : share;
    this.isLimited = credits < share;
    return credits === this.told ? 0 : credits;
  }

  /** The same, for a peer that was told less than its share: there may be room now. */
  toRaise(): number {
    if (!this.isLimited) return 0;
    const credits = this.#engine.offer;
    if (credits <= this.told) return 0;
    this.isLimited = credits < this.#engine.share;
    return credits;
  }

  /** The peer is told `credits`. Returns the word of the ping that must follow; 0 if none must. */
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

  /** The peer has heard what was told before the ping with that word. */
  onEcho(word: number): void {
    const index = this.#unheard.findIndex((told) => told.word === word);
    if (index >= 0) this.#hear(index);
  }

  /** Whether a request may begin at `nowMs` beside `held` others, which are as many as the peer was told. */
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
