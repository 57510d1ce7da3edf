/** A backend that is ready to take a call. */
export interface Candidate {
  /** The URL of the backend: the same in every process. */
  readonly name: string;
  /** Calls of this engine to the backend that are in flight, without streams. */
  readonly inFlight: number;
  /** Streams of this engine that are open at the backend, idle or not. */
  readonly streams: number;
  /** The backend's share of calls relative to the others, from above 0 to 1; below 1 during slow start. */
  readonly weight: number;
}

/**
 * Picks the backend of a call. `pick` is called for each call with the backends that are ready, at least one. It must
 * return one of them. `key` is the client's `key`, or what `keyOf` returned for the call. `isStream` says whether the
 * call is a stream.
 *
 * @example
 * const nearest: Policy = {
 *   pick: (candidates) => candidates.find(({ name }) => name.includes("10.0.1.")) ?? candidates[0]!,
 * };
 * const storage = await engine.connect(dnsResolver("tcp://files.internal:7400"), { policy: nearest });
 */
export interface Policy {
  pick<C extends Candidate>(candidates: readonly C[], key: string | undefined, isStream: boolean): C;
}

/**
 * The built-in policies. `roundRobin`: each backend in turn. `leastInFlight`: the backend with the fewest calls in
 * flight. `twoChoices`: the better one of two random backends. `consistentHash`: the same backend for the same key.
 * Open streams count where another stream is opened, and not for other calls.
 */
export type PolicyName = "roundRobin" | "leastInFlight" | "twoChoices" | "consistentHash";

export const policies: Readonly<Record<PolicyName, (random?: () => number) => Policy>> = {
  roundRobin: () => new RoundRobin(),
  leastInFlight: (random) => new LeastInFlight(random),
  twoChoices: (random) => new TwoChoices(random),
  consistentHash: (random) => new ConsistentHash(random),
};

/**
 * The load of a candidate with one more call. A stream may be open and idle for days, so it adds no load for other
 * calls. A busy stream slows other calls down, and their number in flight shows that. Streams count for each other,
 * which spreads them.
 */
function loadOf({ inFlight, streams, weight }: Candidate, isStream: boolean): number {
  return (isStream ? inFlight + streams + 1 : inFlight + 1) / weight;
}

/**
 * Each backend in turn, by weight: the smooth weighted round robin of nginx. Each pick adds every backend's weight to
 * its credit. The backend with the most credit is chosen, and pays the sum of the weights. So the turns of one backend
 * are spread evenly among the turns of the others. Streams have turns of their own: a client that opens a stream before
 * each call would otherwise place all streams at one backend.
 */
class RoundRobin implements Policy {
  readonly #credits = new WeakMap<object, number>();
  readonly #streamCredits = new WeakMap<object, number>();

  pick<C extends Candidate>(candidates: readonly C[], _key: string | undefined, isStream: boolean): C {
    const credits = isStream ? this.#streamCredits : this.#credits;
    let best = candidates[0] as C;
    let bestCredit = Number.NEGATIVE_INFINITY;
    let given = 0;
    for (const candidate of candidates) {
      const credit = (credits.get(candidate) ?? 0) + candidate.weight;
      given += candidate.weight;
      credits.set(candidate, credit);
      if (credit > bestCredit) {
        best = candidate;
        bestCredit = credit;
      }
    }
    credits.set(best, bestCredit - given);
    return best;
  }
}

/**
 * The backend with the fewest calls of this engine in flight. A tie is broken at random, so that clients do not all
 * begin with the same backend.
 */
class LeastInFlight implements Policy {
  readonly #random: () => number;

  constructor(random: () => number = Math.random) {
    this.#random = random;
  }

  pick<C extends Candidate>(candidates: readonly C[], _key: string | undefined, isStream: boolean): C {
    let best = candidates[0] as C;
    let bestLoad = Number.POSITIVE_INFINITY;
    let ties = 0;
    for (const candidate of candidates) {
      const load = loadOf(candidate, isStream);
      if (load > bestLoad) continue;
      ties = load < bestLoad ? 1 : ties + 1;
      // Each of n equal candidates is kept with probability 1/n.
      if (ties === 1 || this.#random() * ties < 1) best = candidate;
      bestLoad = load;
    }
    return best;
  }
}

/**
 * Picks two backends at random, and takes the one with fewer calls in flight. That is nearly as even as comparing all,
 * at a cost that does not grow with their number. Clients with equally little knowledge do not all choose the same
 * backend (Mitzenmacher, "The power of two choices in randomized load balancing", IEEE TPDS 2001).
 */
class TwoChoices implements Policy {
  readonly #random: () => number;

  constructor(random: () => number = Math.random) {
    this.#random = random;
  }

  pick<C extends Candidate>(candidates: readonly C[], _key: string | undefined, isStream: boolean): C {
    const count = candidates.length;
    const first = Math.floor(this.#random() * count);
    if (count === 1) return candidates[0] as C;
    // Any candidate but the first.
    const second = (first + 1 + Math.floor(this.#random() * (count - 1))) % count;
    const [a, b] = [candidates[first] as C, candidates[second] as C];
    return loadOf(b, isStream) < loadOf(a, isStream) ? b : a;
  }
}

/**
 * The same candidate for the same key, in every process, while that candidate is ready: highest random weight hashing
 * (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM ToN 1998). Each candidate has a
 * pseudo-random score for each key, and the highest wins. When a candidate goes, only its keys move, evenly to all
 * others; when it is back, those keys return. A ring of points would need hundreds for each candidate to be as even.
 * Calls without a key go by two choices. Weights do not count, since a key must not move.
 */
class ConsistentHash implements Policy {
  readonly #keyless: TwoChoices;
  readonly #seeds = new WeakMap<object, number>();

  constructor(random: () => number = Math.random) {
    this.#keyless = new TwoChoices(random);
  }

  pick<C extends Candidate>(candidates: readonly C[], key: string | undefined, isStream: boolean): C {
    if (key === undefined) return this.#keyless.pick(candidates, key, isStream);
    const hash = hashOf(key);
    let best = candidates[0] as C;
    let bestScore = -1;
    for (const candidate of candidates) {
      const score = mix(hash ^ this.#seedOf(candidate));
      // The name breaks a tie, because the order of the list differs between processes.
      if (score > bestScore || (score === bestScore && candidate.name < best.name)) {
        best = candidate;
        bestScore = score;
      }
    }
    return best;
  }

  #seedOf(candidate: Candidate): number {
    let seed = this.#seeds.get(candidate);
    if (seed === undefined) {
      seed = mix(hashOf(candidate.name));
      this.#seeds.set(candidate, seed);
    }
    return seed;
  }
}

/** The weight of a newly connected backend. */
const leastWeight = 0.1;

/**
 * The weight of a backend that is connected since `sinceMs`: it grows evenly from 0.1 to 1 over `slowStartMs`. A new
 * process has cold caches, unoptimised code and the fewest calls in flight, so it would receive all calls (Envoy's slow
 * start mode).
 */
export function slowStartWeight(nowMs: number, sinceMs: number, slowStartMs: number): number {
  if (slowStartMs <= 0) return 1;
  return Math.min(1, Math.max(leastWeight, (nowMs - sinceMs) / slowStartMs));
}

/** FNV-1a over the UTF-16 code units, 32 bits. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) {
    hash = Math.imul(hash ^ (text.charCodeAt(i) & 0xff), 0x01000193);
    hash = Math.imul(hash ^ (text.charCodeAt(i) >>> 8), 0x01000193);
  }
  return hash >>> 0;
}

/** The finalizer of MurmurHash3: every bit of the result depends on every bit of the input. */
function mix(value: number): number {
  let hash = value | 0;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
