import type { CarriedFailure, Reply } from "./envelope.ts";

/** Why a rank failed, without which one. */
export type Failure = Omit<CarriedFailure, "rank" | "executed">;

/** Makes one of two contributions; it may throw. Undefined where there are no outputs. */
export type Reduce = (one: unknown, other: unknown) => unknown;

/**
 * Where a rank stands.
 *
 *   untouched  nothing was sent to it: certainly not executed
 *   begun      it may run
 *   settled    it is in `ok` or in `failed`
 */
const untouched = 0;
const begun = 1;
const settled = 2;

/**
 * What is known of a run of ranks. Every rank settles once, as a part of the value or as a failure; what comes later is
 * ignored. So `ok` and `failed` are disjoint, and together the run when it is closed.
 */
export class Tally {
  readonly #ranks: readonly number[];
  readonly #reduce: Reduce | undefined;
  readonly #stands: Uint8Array;
  readonly #ok: number[] = [];
  readonly #failed: CarriedFailure[] = [];
  readonly #repaired: number[] = [];
  #value: unknown;
  #hasValue = false;
  #open: number;

  constructor(ranks: readonly number[], reduce: Reduce | undefined) {
    this.#ranks = ranks;
    this.#reduce = reduce;
    this.#stands = new Uint8Array(ranks.length);
    this.#open = ranks.length;
  }

  get isComplete(): boolean {
    return this.#open === 0;
  }

  get failures(): number {
    return this.#failed.length;
  }

  /** These ranks may run from now on. */
  begin(start: number, count = 1): void {
    for (let index = start; index < start + count; index++)
      if (this.#stands[index] === untouched) this.#stands[index] = begun;
  }

  /** They certainly did not run after all. */
  undo(start: number, count: number): void {
    for (let index = start; index < start + count; index++)
      if (this.#stands[index] === begun) this.#stands[index] = untouched;
  }

  /** One rank failed. Executed or not: as it stands, where it is not said. */
  fail(index: number, failure: Failure, executed?: CarriedFailure["executed"]): void {
    const stand = this.#stands[index];
    if (stand === settled || stand === undefined) return;
    this.#settle(index);
    const rank = this.#ranks[index] as number;
    const said = executed ?? (stand === untouched ? "no" : "maybe");
    this.#failed.push({ ...failure, rank, executed: said });
  }

  /** The output of one rank. */
  succeed(index: number, value: unknown): void {
    if (this.#stands[index] === settled) return;
    const failure = this.#add(value);
    if (failure !== undefined) return this.fail(index, failure, "yes");
    this.#settle(index);
    this.#ok.push(this.#ranks[index] as number);
  }

  /**
   * What a child says of its run. Its value must have been checked.
   *
   * @throws Error where the reply is not about exactly this run: then nothing of it counts
   */
  merge(start: number, count: number, reply: Reply): void {
    const places = new Map<number, number>();
    for (let index = start; index < start + count; index++) places.set(this.#ranks[index] as number, index);
    const claim = (rank: number): number => {
      const index = places.get(rank);
      if (index === undefined || this.#stands[index] === settled)
        throw new Error(`the reply tells of rank ${rank} out of turn`);
      places.delete(rank);
      return index;
    };
    const ok = reply.ok.map(claim);
    const failed = reply.failed.map((failure) => [claim(failure.rank), failure] as const);
    const [left] = places.keys();
    if (left !== undefined) throw new Error(`the reply does not tell of rank ${left}`);
    for (const [index, failure] of failed) this.fail(index, failure, failure.executed);
    if (ok.length === 0) return;
    const failure = this.#add(reply.value);
    for (const index of ok) {
      if (failure !== undefined) this.fail(index, failure, "yes");
      else this.#settle(index);
    }
    if (failure !== undefined) return;
    const reached = new Set(reply.ok);
    for (const rank of reply.ok) this.#ok.push(rank);
    for (const rank of reply.repaired) if (reached.has(rank)) this.#repaired.push(rank);
  }

  /** Its parent had failed, and it was reached by another way. */
  noteRepaired(index: number): void {
    const rank = this.#ranks[index] as number;
    if (this.#ok.includes(rank)) this.#repaired.push(rank);
  }

  /** All ranks that are not settled have failed. */
  close(failure: Failure): void {
    if (this.isComplete) return;
    for (let index = 0; index < this.#ranks.length; index++) this.fail(index, failure);
  }

  /** What is known, which changes no more once it is complete. */
  reply(elapsedMs: number): Reply {
    return {
      value: this.#value,
      ok: this.#ok,
      failed: this.#failed,
      repaired: this.#repaired,
      elapsedMs,
    };
  }

  #settle(index: number): void {
    this.#stands[index] = settled;
    this.#open--;
  }

  /** Puts a contribution to the value. Gives why that failed: the value is then as it was. */
  #add(value: unknown): Failure | undefined {
    const reduce = this.#reduce;
    if (reduce === undefined) return undefined;
    try {
      this.#value = this.#hasValue ? reduce(this.#value, value) : value;
      this.#hasValue = true;
      return undefined;
    } catch (error) {
      return { code: "internal", message: `reduce threw: ${messageOf(error)}`, retryable: false };
    }
  }
}

const messageOf = (error: unknown): string =>
  (error instanceof Error ? error.message : String(error)).slice(0, 500);
