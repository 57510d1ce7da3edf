import { RecentLeast } from "./recent-least.ts";

/** What an answer tells of its request. Times are in milliseconds, on one clock. */
export interface AnswerSample {
  readonly nowMs: number;
  /** When the request left. */
  readonly sentMs: number;
  /** How long it waited at the peer before its handler began, as the peer tells. */
  readonly waitedMs: number;
  /** How many are in flight, this one included. */
  readonly inFlight: number;
  /** More would be in flight if more might. */
  readonly limited: boolean;
}

/**
 * Requests may wait so long at the peer, or as long as the fastest took lately without the wait: a queue that short
 * keeps it busy, and no longer one is of use. The threshold of WeChat's DAGOR: a process that shares its processor
 * makes requests wait for milliseconds now and then, however few they are.
 */
const leastTargetMs = 20;
/**
 * Round trips without congestion after which the limit grows by one more each: TIMELY's hyperactive increase (R. Mittal
 * et al., SIGCOMM 2015).
 */
const calmRoundsAStep = 4;
/** Share of what is too much that is taken back at once, and the most of the limit: Swift's beta and max_mdf. */
const beta = 0.8;
const mostDecrease = 0.5;
/** This many late answers are enough for a decision before a round trip is over. */
const enoughLate = 8;
/** After this time without a sign of congestion, what was learned of it is forgotten. */
const calmMs = 1000;
/** The least service time is that of the last one or two of these. */
const periodMs = 5000;

/**
 * How many requests one peer should have in flight: additive increase, multiplicative decrease, on the time requests
 * wait at the peer. That is the endpoint's part of Swift (G. Kumar et al., "Swift: Delay is Simple and Effective for
 * Congestion Control in the Datacenter", SIGCOMM 2020), with the peer's own measure of its queue as the delay, which
 * tells overload from long handlers (H. Zhou et al., "Overload Control for Scaling WeChat Microservices", SoCC 2018).
 *
 * It begins wide open and shrinks only on evidence, at most once a round trip: only requests that left after the last
 * decrease can show that it was not enough.
 */
export class AdaptiveLimit {
  readonly #floor: number;
  #limit = Number.POSITIVE_INFINITY;
  /** Below it the limit grows by one an answer, above it by one a round trip. */
  #threshold = Number.POSITIVE_INFINITY;
  /** What left before says nothing any more. */
  #staleMs = Number.NEGATIVE_INFINITY;
  /**
   * The last round trip was late. One alone may be a pause of the peer's process; two in a row, of which the second
   * began after the first was judged, are a queue that stands.
   */
  #wasLate = false;
  #congestedMs = Number.NEGATIVE_INFINITY;
  /** The round trip is over when what left after its beginning is answered. */
  #roundMs = Number.NEGATIVE_INFINITY;
  #answers = 0;
  #late = 0;
  #lateMs = 0;
  #limited = false;
  #calmRounds = 0;
  readonly #served = new RecentLeast(periodMs);

  /** `floor`: it never shrinks below that. */
  constructor(floor: number) {
    this.#floor = floor;
  }

  /** A whole number, or Infinity while nothing has shown that it is needed. */
  get limit(): number {
    return Math.floor(this.#limit);
  }

  get targetMs(): number {
    const leastMs = this.#served.least;
    return leastMs === Number.POSITIVE_INFINITY ? leastTargetMs : Math.max(leastTargetMs, leastMs);
  }

  onAnswer({ nowMs, sentMs, waitedMs, inFlight, limited }: AnswerSample): void {
    this.#served.record(Math.max(0, nowMs - sentMs - waitedMs), nowMs);
    if (sentMs < this.#staleMs) return;
    this.#answers++;
    this.#limited ||= limited;
    if (waitedMs > this.targetMs) {
      this.#late++;
      this.#lateMs += waitedMs;
    }
    const mostAreLate = this.#late * 2 > this.#answers;
    const isOver = sentMs >= this.#roundMs;
    if (mostAreLate && (isOver || this.#late >= enoughLate)) {
      const waitMs = this.#lateMs / this.#late;
      const share = Math.min((beta * (waitMs - this.targetMs)) / waitMs, mostDecrease);
      // So few in flight are not what the queue is made of: who sent them need not be held back from sending more
      // another time.
      if (this.#wasLate && inFlight > this.#floor) this.#decrease(nowMs, inFlight, share);
      this.#wasLate = true;
      this.#staleMs = nowMs;
      this.#congestedMs = nowMs;
      this.#beginRound(nowMs);
    } else if (isOver) {
      this.#wasLate = false;
      if (this.#limited && !mostAreLate) this.#increase(nowMs);
      this.#beginRound(nowMs);
    }
  }

  /** The peer has sent a request away, or let its time run out, before its handler began. */
  onPushBack(nowMs: number, sentMs: number, inFlight: number): void {
    if (sentMs < this.#staleMs) return;
    this.#decrease(nowMs, inFlight, mostDecrease);
    this.#beginRound(nowMs);
  }

  /**
   * Calls wait though there has been no sign of congestion for long: all places may be taken by calls that take long by
   * their nature. True if there is more room now.
   */
  onStarved(nowMs: number): boolean {
    if (nowMs - this.#congestedMs < calmMs || this.#limit === Number.POSITIVE_INFINITY) return false;
    this.#threshold = Number.POSITIVE_INFINITY;
    this.#limit *= 2;
    return true;
  }

  #decrease(nowMs: number, inFlight: number, share: number): void {
    this.#limit = Math.max(this.#floor, Math.min(this.#limit, inFlight) * (1 - share));
    this.#threshold = this.#limit;
    this.#calmRounds = 0;
    this.#staleMs = nowMs;
    this.#congestedMs = nowMs;
  }

  #increase(nowMs: number): void {
    if (nowMs - this.#congestedMs >= calmMs) this.#threshold = Number.POSITIVE_INFINITY;
    if (this.#limit < this.#threshold) this.#limit += this.#answers;
    else this.#limit += Math.min(1 + Math.floor(this.#calmRounds++ / calmRoundsAStep), this.#limit / 4);
  }

  #beginRound(nowMs: number): void {
    this.#roundMs = nowMs;
    this.#answers = 0;
    this.#late = 0;
    this.#lateMs = 0;
    this.#limited = false;
  }
}
