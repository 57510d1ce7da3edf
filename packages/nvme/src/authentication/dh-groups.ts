import { type DhPower, dhThread } from "./dh-thread.ts";

/** The groups of DH-HMAC-CHAP. Their identifiers on the wire are their places. */
export const dhGroupNames = [
  "null",
  "ffdhe2048",
  "ffdhe3072",
  "ffdhe4096",
  "ffdhe6144",
  "ffdhe8192",
] as const;

/** A group of DH-HMAC-CHAP: of RFC 7919, or none. */
export type NvmeDhGroup = (typeof dhGroupNames)[number];

/** RFC 7919: the first number, counted on from 2^(bits - 130) e, that makes a prime whose half is a prime. */
const counts: Readonly<Record<Exclude<NvmeDhGroup, "null">, number>> = {
  ffdhe2048: 560_316,
  ffdhe3072: 2_625_351,
  ffdhe4096: 5_736_041,
  ffdhe6144: 15_705_020,
  ffdhe8192: 10_965_728,
};

const primes = new Map<NvmeDhGroup, Buffer>();

/** The prime of a group: 2^bits - 2^(bits - 64) + 2^64 (floor(2^(bits - 130) e) + count) - 1. Big-endian. */
export function primeOf(group: Exclude<NvmeDhGroup, "null">): Buffer {
  let prime = primes.get(group);
  if (prime === undefined) {
    const bits = BigInt(group.slice("ffdhe".length));
    const number =
      (1n << bits) - (1n << (bits - 64n)) + ((eulers(bits - 130n) + BigInt(counts[group])) << 64n) - 1n;
    prime = Buffer.from(number.toString(16), "hex");
    primes.set(group, prime);
  }
  return prime;
}

/** floor(2^bits e), by the sum of 1 / n!. Its terms are cut, so they have bits beyond those that count. */
function eulers(bits: bigint): bigint {
  const spare = 64n;
  let sum = 0n;
  let term = 1n << (bits + spare);
  for (let n = 1n; term > 0n; n++) {
    sum += term;
    term /= n;
  }
  return sum >> spare;
}

/** How long the values of a group are. */
export const dhValueBytes = (group: NvmeDhGroup): number => (group === "null" ? 0 : primeOf(group).length);

/** One side of an exchange of keys, in a group that is not null. */
export class DhExchange {
  /** The public value for the other side. */
  readonly value: Buffer;
  readonly #group: Exclude<NvmeDhGroup, "null">;
  readonly #host: string;
  readonly #key: Uint8Array;

  private constructor(group: Exclude<NvmeDhGroup, "null">, host: string, { power, key }: DhPower) {
    this.#group = group;
    this.#host = host;
    this.#key = key;
    this.value = Buffer.alloc(dhValueBytes(group));
    this.value.set(power, this.value.length - power.length);
  }

  /**
   * Begins an exchange.
   *
   * @param host the NQN of the host that proves itself
   * @throws as `dhThread.compute`.
   */
  static async begin(
    group: Exclude<NvmeDhGroup, "null">,
    host: string,
    signal?: AbortSignal,
  ): Promise<DhExchange> {
    return new DhExchange(group, host, await dhThread.compute(host, { prime: primeOf(group) }, signal));
  }

  /**
   * The shared secret, as long as the prime. Undefined for an invalid public value: 0, 1, at least the prime - 1, and
   * with OpenSSL 3.0 one that is no power of the base.
   *
   * @throws as `dhThread.compute`.
   */
  async secretWith(value: Buffer, signal?: AbortSignal): Promise<Buffer | undefined> {
    const prime = primeOf(this.#group);
    // The prime is odd, so that one less differs in the last byte alone.
    const isTooLarge =
      Buffer.compare(value.subarray(0, -1), prime.subarray(0, -1)) > 0 ||
      (value.subarray(0, -1).equals(prime.subarray(0, -1)) && (value.at(-1) ?? 0) >= (prime.at(-1) ?? 0) - 1);
    const isTooSmall = value.subarray(0, -1).every((byte) => byte === 0) && (value.at(-1) ?? 0) < 2;
    if (value.length !== prime.length || isTooLarge || isTooSmall) return undefined;
    const { power } = await dhThread.compute(this.#host, { key: this.#key, value }, signal);
    return power.length === 0 ? undefined : Buffer.from(power);
  }
}
