/** The number of samples for the estimate. */
const windowSize = 64;
/** A peer is suspected when an answer so late would come once in 10^8 times. The value that Akka and Cassandra use. */
export const suspectPhi = 8;

/**
 * Estimates how long a peer takes to answer a ping, and how unusual its silence is: the phi accrual failure detector
 * (Hayashibara, Défago, Yared, Katayama, SRDS 2004), with the logistic approximation of the normal distribution that
 * Akka uses. The paper measures the intervals between unsolicited heartbeats. Here a ping asks for each answer, so the
 * time to the answer is measured instead. So a slow peer has more time than a quick one.
 *
 * `floorMs` is the least deviation assumed: a machine that was quiet for 64 pings must not be suspected for one pause
 * of its collector.
 */
export class FailureDetector {
  readonly #floorMs: number;
  readonly #samples: number[] = [];
  #next = 0;

  constructor(floorMs: number) {
    this.#floorMs = floorMs;
  }

  /** The peer took `ms` to answer. */
  sample(ms: number): void {
    this.#samples[this.#next] = ms;
    this.#next = (this.#next + 1) % windowSize;
  }

  /** -log10 of the chance that the answer comes later than that. Grows with `elapsedMs`. */
  phi(elapsedMs: number): number {
    const { mean, deviation } = this.#estimate();
    const y = (elapsedMs - mean) / deviation;
    const e = Math.exp(-y * (1.5976 + 0.070566 * y * y));
    // Far out the probability is too small for a double, and `e` is its best approximation.
    if (e < 1e-300) return 300;
    return y > 0 ? -Math.log10(e / (1 + e)) : -Math.log10(1 - 1 / (1 + e));
  }

  /** The time after which `phi` reaches the threshold. */
  suspectAfterMs(threshold = suspectPhi): number {
    const { mean, deviation } = this.#estimate();
    let low = mean;
    let high = mean + 20 * deviation;
    while (high - low > deviation / 1000) {
      const middle = (low + high) / 2;
      if (this.phi(middle) < threshold) low = middle;
      else high = middle;
    }
    return high;
  }

  #estimate(): { mean: number; deviation: number } {
    const count = this.#samples.length;
    if (count === 0) return { mean: this.#floorMs, deviation: this.#floorMs };
    let sum = 0;
    for (const sample of this.#samples) sum += sample;
    const mean = sum / count;
    let squares = 0;
    for (const sample of this.#samples) squares += (sample - mean) ** 2;
    return { mean, deviation: Math.max(this.#floorMs, Math.sqrt(squares / count)) };
  }
}
