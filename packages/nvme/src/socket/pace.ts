import { integer } from "cinnabar/options";

/** How fast one host may use what a server serves. */
export interface RateLimits {
  /** Bytes that one host may read and write in a second, at least 4,096. Default: no limit. */
  readonly maxBytesPerSecond?: number | undefined;
  /** Operations of one host in a second: reads, writes, flushes, trims and all others. Default: no limit. */
  readonly maxOperationsPerSecond?: number | undefined;
}

export const rateFields = {
  maxBytesPerSecond: integer(4096, 2 ** 50),
  maxOperationsPerSecond: integer(1, 1_000_000_000),
};

/** What waits for its turn. */
export interface RateCounts {
  /** Operations that wait because their host has used up its rate. */
  readonly waiting: number;
  /** The bytes of these reads and writes. */
  readonly waitingBytes: number;
}

/** A host that has been quiet may do at once what it may do in this time. */
const burstMs = 100;

/** An allowance that grows with time. An operation that is longer than all of it leaves a debt. */
class Allowance {
  readonly #perMs: number;
  readonly #most: number;
  #left: number;

  constructor(perSecond: number) {
    this.#perMs = perSecond / 1000;
    this.#most = Math.max(1, this.#perMs * burstMs);
    this.#left = this.#most;
  }

  grow(ms: number): void {
    this.#left = Math.min(this.#most, this.#left + ms * this.#perMs);
  }

  /** How long an operation waits. */
  waitMs(cost: number): number {
    return Math.max(0, (Math.min(cost, this.#most) - this.#left) / this.#perMs);
  }

  spend(cost: number): void {
    this.#left -= cost;
  }

  /** When it is whole again. */
  get restMs(): number {
    return (this.#most - this.#left) / this.#perMs;
  }
}

interface Waiter {
  readonly bytes: number;
  readonly isGone: () => boolean;
  readonly resolve: () => void;
}

/** The rate of one host, over all its connections. Its operations go in their order, by one timer. */
export class Pace {
  readonly #bytes: Allowance | undefined;
  readonly #operations: Allowance | undefined;
  readonly #waiting: Waiter[] = [];
  #grownAtMs = performance.now();
  #timer: NodeJS.Timeout | undefined;

  private constructor({ maxBytesPerSecond, maxOperationsPerSecond }: RateLimits) {
    this.#bytes = maxBytesPerSecond === undefined ? undefined : new Allowance(maxBytesPerSecond);
    this.#operations =
      maxOperationsPerSecond === undefined ? undefined : new Allowance(maxOperationsPerSecond);
  }

  /** Undefined without limits. */
  static of(limits: RateLimits): Pace | undefined {
    const { maxBytesPerSecond, maxOperationsPerSecond } = limits;
    return maxBytesPerSecond === undefined && maxOperationsPerSecond === undefined
      ? undefined
      : new Pace(limits);
  }

  get counts(): RateCounts {
    return {
      waiting: this.#waiting.length,
      waitingBytes: this.#waiting.reduce((sum, { bytes }) => sum + bytes, 0),
    };
  }

  /** How long a host must be quiet to have its whole allowance again. */
  get restMs(): number {
    this.#grow();
    return Math.ceil(Math.max(this.#bytes?.restMs ?? 0, this.#operations?.restMs ?? 0));
  }

  /**
   * Undefined where an operation may begin, or a promise that resolves when it may.
   *
   * @param isGone whether nobody wants the operation any more. Such a one costs nothing: see `look`
   */
  take(bytes: number, isGone: () => boolean): Promise<void> | undefined {
    if (this.#waiting.length === 0) {
      this.#grow();
      if (this.#waitMs(bytes) === 0) {
        this.#spend(bytes);
        return undefined;
      }
    }
    return new Promise((resolve) => {
      this.#waiting.push({ bytes, isGone, resolve });
      this.#arm();
    });
  }

  /** Resolves what nobody wants any more. The owner of such operations calls it when they are gone. */
  look(): void {
    const gone = this.#waiting.filter(({ isGone }) => isGone());
    for (const one of gone) {
      this.#waiting.splice(this.#waiting.indexOf(one), 1);
      one.resolve();
    }
    if (this.#waiting.length > 0) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  readonly #serve = (): void => {
    this.#timer = undefined;
    this.#grow();
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      const isWanted = !next.isGone();
      if (isWanted && this.#waitMs(next.bytes) > 0) return this.#arm();
      this.#waiting.shift();
      if (isWanted) this.#spend(next.bytes);
      next.resolve();
    }
  };

  #arm(): void {
    const [next] = this.#waiting;
    if (this.#timer !== undefined || next === undefined) return;
    // A timer may have a fraction of a millisecond less than the clock.
    this.#timer = setTimeout(this.#serve, Math.ceil(this.#waitMs(next.bytes)));
  }

  #grow(): void {
    const nowMs = performance.now();
    this.#bytes?.grow(nowMs - this.#grownAtMs);
    this.#operations?.grow(nowMs - this.#grownAtMs);
    this.#grownAtMs = nowMs;
  }

  #waitMs(bytes: number): number {
    return Math.max(this.#bytes?.waitMs(bytes) ?? 0, this.#operations?.waitMs(1) ?? 0);
  }

  #spend(bytes: number): void {
    this.#bytes?.spend(bytes);
    this.#operations?.spend(1);
  }
}

/** So many hosts without a connection have their debts kept at most. */
const maxResting = 10_000;

interface PacedHost {
  readonly pace: Pace;
  users: number;
  /** Forgets the host when its debt is paid. */
  rest?: NodeJS.Timeout;
}

/** The paces of hosts that have connections, or have had them and owe for what they did: a new connection is no way out. */
export class Paces {
  readonly #limits: RateLimits;
  readonly #hosts = new Map<string, PacedHost>();
  #resting = 0;

  constructor(limits: RateLimits) {
    this.#limits = limits;
  }

  get counts(): RateCounts {
    const all = [...this.#hosts.values()].map(({ pace }) => pace.counts);
    return {
      waiting: all.reduce((sum, { waiting }) => sum + waiting, 0),
      waitingBytes: all.reduce((sum, { waitingBytes }) => sum + waitingBytes, 0),
    };
  }

  /** The pace of a host, undefined without limits. Each caller gives it back. */
  take(host: string): Pace | undefined {
    const known = this.#hosts.get(host);
    if (known !== undefined) {
      if (known.users === 0) {
        clearTimeout(known.rest);
        this.#resting--;
      }
      known.users++;
      return known.pace;
    }
    const pace = Pace.of(this.#limits);
    if (pace !== undefined) this.#hosts.set(host, { pace, users: 1 });
    return pace;
  }

  giveBack(host: string): void {
    const known = this.#hosts.get(host);
    if (known === undefined) return;
    known.users--;
    if (known.users > 0) return;
    const { restMs } = known.pace;
    if (restMs === 0 || this.#resting === maxResting) {
      this.#hosts.delete(host);
      return;
    }
    this.#resting++;
    known.rest = setTimeout(() => {
      this.#resting--;
      this.#hosts.delete(host);
    }, restMs).unref();
  }
}
