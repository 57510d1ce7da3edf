/** The content of a histogram as plain data, for other processes. Counts are sparse: pairs `[bucket, count]`. */
export interface HistogramData {
  readonly count: number;
  readonly min: number;
  readonly max: number;
  readonly sum: number;
  readonly buckets: readonly (readonly [bucket: number, count: number])[];
}

/** The usual figures of a histogram. All are 0 if nothing was recorded. */
export interface HistogramSummary {
  readonly count: number;
  readonly min: number;
  readonly mean: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly p999: number;
  readonly max: number;
}

/** The logarithm of the number of buckets in each octave. */
const bucketsPerOctaveBits = 5;
const lowestExponent = -10;
const highestExponent = 32;
const bucketCount = (highestExponent - lowestExponent) << bucketsPerOctaveBits;
const exponentBias = 1023;
/** The number of bits in the upper word of a double below the bits of the bucket. */
const shift = 20 - bucketsPerOctaveBits;
const firstBucket = (lowestExponent + exponentBias) << bucketsPerOctaveBits;

const number = new Float64Array(1);
const words = new Uint32Array(number.buffer);
const upperWord = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1 ? 1 : 0;

/** The largest relative error of a percentile: half the width of a bucket, 1/64. */
export const histogramError: number = 1 / (2 << bucketsPerOctaveBits);

/**
 * Counts values in constant memory: 1344 counters, 10.5 KiB, allocated by the first record. Buckets are log-linear as
 * in HdrHistogram (Gil Tene, hdrhistogram.org): 32 of equal width in each octave from 2^-10 to 2^32. The error of a
 * percentile is at most 1.6 % of its value. In milliseconds the range is one microsecond to 49 days. Values outside
 * count in the outermost buckets. `min`, `max` and `mean` are exact.
 *
 * The bucket of a double is its exponent and the first five bits of its mantissa, read from memory. A record takes no
 * logarithm.
 *
 * @example
 * const all = new Histogram();
 * for (const one of [engine.latency("files.v1/stat", "out"), engine.latency("files.v1/upload", "out")]) all.merge(one);
 * console.log(all.percentile(50), all.summary().p99);
 * const copy = Histogram.from(JSON.parse(JSON.stringify(all)) as HistogramData); // as in another process
 */
export class Histogram {
  #counts: Float64Array | undefined;
  #count = 0;
  #min = Number.POSITIVE_INFINITY;
  #max = 0;
  #sum = 0;

  /** Makes a histogram from plain data. @throws TypeError for malformed data. */
  static from(data: HistogramData): Histogram {
    const histogram = new Histogram();
    const counts = new Float64Array(bucketCount);
    let count = 0;
    for (const [bucket, times] of data.buckets) {
      const isOne = Number.isInteger(bucket) && bucket >= 0 && bucket < bucketCount && counts[bucket] === 0;
      if (!isOne || !Number.isSafeInteger(times) || times < 1)
        throw new TypeError(`Histogram.from: there is no bucket ${bucket} with ${times} values`);
      counts[bucket] = times;
      count += times;
    }
    if (count !== data.count)
      throw new TypeError(`Histogram.from: ${count} values in buckets, but count is ${data.count}`);
    if (count === 0) return histogram;
    const { min, max, sum } = data;
    if (!(min >= 0 && min <= max && sum >= max))
      throw new TypeError(`Histogram.from: min ${min}, max ${max} and sum ${sum} are no histogram's`);
    histogram.#counts = counts;
    histogram.#count = count;
    histogram.#min = min;
    histogram.#max = max;
    histogram.#sum = sum;
    return histogram;
  }

  get count(): number {
    return this.#count;
  }

  get min(): number {
    return this.#count === 0 ? 0 : this.#min;
  }

  get max(): number {
    return this.#max;
  }

  get mean(): number {
    return this.#count === 0 ? 0 : this.#sum / this.#count;
  }

  /** Records a value. Negative values and NaN count as 0. */
  record(value: number): void {
    const counted = Number.isNaN(value) ? 0 : Math.max(0, value);
    this.#counts ??= new Float64Array(bucketCount);
    number[0] = counted;
    const exact = ((words[upperWord] as number) >>> shift) - firstBucket;
    const bucket = exact < 0 ? 0 : exact < bucketCount ? exact : bucketCount - 1;
    this.#counts[bucket] = (this.#counts[bucket] as number) + 1;
    this.#count++;
    this.#sum += counted;
    if (counted < this.#min) this.#min = counted;
    if (counted > this.#max) this.#max = counted;
  }

  /**
   * The value that `percent` of all values do not exceed, with an error of at most 1.6 %; 0 if nothing was recorded.
   * @throws RangeError unless `percent` is from 0 to 100.
   */
  percentile(percent: number): number {
    if (!(percent >= 0 && percent <= 100))
      throw new RangeError(`percentile: ${percent} is not between 0 and 100`);
    if (this.#counts === undefined) return 0;
    const rank = Math.max(1, Math.ceil((percent / 100) * this.#count));
    if (rank === this.#count) return this.#max;
    let seen = 0;
    for (let bucket = 0; bucket < bucketCount; bucket++) {
      seen += this.#counts[bucket] as number;
      if (seen >= rank) return Math.min(Math.max(middleOf(bucket), this.#min), this.#max);
    }
    return this.#max;
  }

  /**
   * How many values are at most each of `bounds`, which ascend: the form for metrics systems with fixed buckets. A
   * bound is up to 1.6 % off, because values in its bucket are counted together.
   *
   * @example
   * engine.latency("files.v1/stat", "in").countsAt([0.1, 1, 10, 100]); // at most 0.1 ms, 1 ms, …
   *
   * @throws RangeError for bounds that do not ascend.
   */
  countsAt(bounds: readonly number[]): number[] {
    const counts: number[] = [];
    let bucket = 0;
    let seen = 0;
    for (const [index, bound] of bounds.entries()) {
      if (!(index === 0 || bound > (bounds[index - 1] as number)) || Number.isNaN(bound))
        throw new RangeError(`countsAt: the bounds must ascend, and ${bound} does not`);
      for (; bucket < bucketCount && middleOf(bucket) <= bound; bucket++) seen += this.#counts?.[bucket] ?? 0;
      counts.push(bound >= this.#max ? this.#count : bound < this.#min ? 0 : seen);
    }
    return counts;
  }

  /** Adds the counts of `other`, which stays unchanged. The merged percentiles are as exact as each histogram's. */
  merge(other: Histogram): void {
    if (other.#counts === undefined) return;
    this.#counts ??= new Float64Array(bucketCount);
    for (let bucket = 0; bucket < bucketCount; bucket++) {
      const more = other.#counts[bucket] as number;
      if (more > 0) this.#counts[bucket] = (this.#counts[bucket] as number) + more;
    }
    this.#count += other.#count;
    this.#sum += other.#sum;
    this.#min = Math.min(this.#min, other.#min);
    this.#max = Math.max(this.#max, other.#max);
  }

  /**
   * The values that were recorded since `earlier`, a former copy of this histogram. `min` and `max` are those of the
   * buckets, and therefore up to 1.6 % off.
   *
   * @example
   * const before = engine.latency("files.v1/stat", "in");
   * // later
   * console.log(engine.latency("files.v1/stat", "in").since(before).percentile(99)); // of the time between
   *
   * @throws RangeError when `earlier` has values that this histogram does not have.
   */
  since(earlier: Histogram): Histogram {
    const since = new Histogram();
    const wrong = () => new RangeError("since: the other histogram is no former copy of this one");
    if (earlier.#count > this.#count) throw wrong();
    if (this.#counts === undefined || earlier.#count === this.#count) return since;
    const counts = new Float64Array(bucketCount);
    let lowest = bucketCount;
    let highest = 0;
    for (let bucket = 0; bucket < bucketCount; bucket++) {
      const more = (this.#counts[bucket] as number) - (earlier.#counts?.[bucket] ?? 0);
      if (more < 0) throw wrong();
      if (more === 0) continue;
      counts[bucket] = more;
      lowest = Math.min(lowest, bucket);
      highest = bucket;
    }
    since.#counts = counts;
    since.#count = this.#count - earlier.#count;
    since.#sum = Math.max(0, this.#sum - earlier.#sum);
    // No value exceeds the sum of all.
    const within = (bucket: number) => Math.min(Math.max(middleOf(bucket), this.#min), this.#max, since.#sum);
    since.#min = within(lowest);
    since.#max = within(highest);
    return since;
  }

  /** Returns an independent copy. */
  copy(): Histogram {
    const copy = new Histogram();
    copy.merge(this);
    return copy;
  }

  summary(): HistogramSummary {
    return {
      count: this.#count,
      min: this.min,
      mean: this.mean,
      p50: this.percentile(50),
      p90: this.percentile(90),
      p99: this.percentile(99),
      p999: this.percentile(99.9),
      max: this.#max,
    };
  }

  toJSON(): HistogramData {
    const buckets: [number, number][] = [];
    this.#counts?.forEach((count, bucket) => {
      if (count > 0) buckets.push([bucket, count]);
    });
    return { count: this.#count, min: this.min, max: this.#max, sum: this.#sum, buckets };
  }
}

function middleOf(bucket: number): number {
  const octave = bucket >> bucketsPerOctaveBits;
  const step = bucket & ((1 << bucketsPerOctaveBits) - 1);
  return 2 ** (lowestExponent + octave) * (1 + (step + 0.5) / (1 << bucketsPerOctaveBits));
}
