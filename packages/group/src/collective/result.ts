import { type ErrorSchemas, type InferOutput, RpcError } from "cinnabar/standard";
import type { CarriedFailure, Reply } from "./envelope.ts";

/** Why a member has no part in the value of a collective. `reason` discriminates the declared errors and their data. */
export type RankFailure<E extends ErrorSchemas = ErrorSchemas> = Omit<
  CarriedFailure,
  "rank" | "reason" | "data"
> &
  (
    | { readonly reason?: undefined; readonly data?: undefined }
    | { readonly [R in keyof E & string]: DeclaredBy<R, E[R]> }[keyof E & string]
  );

interface DeclaredBy<Reason extends string, S extends ErrorSchemas[string]> {
  readonly reason: Reason;
  readonly data: InferOutput<S>;
}

/** What became of a collective. `ok` and `failed` are disjoint, and together they are the targets. */
export interface CollectiveResult<Output, E extends ErrorSchemas = ErrorSchemas> {
  /** The outputs of exactly the members in `ok`, reduced to one. */
  readonly value: Output;
  /** The ranks that executed the call and have their outputs in the value, ascending. */
  readonly ok: readonly number[];
  /**
   * The ranks that have no part in the value, ascending. `executed` says whether the handler ran: "maybe" where the
   * member was lost while it may have.
   */
  readonly failed: ReadonlyMap<number, RankFailure<E>>;
  /** Ranks of `ok` that were reached by another way after their parent in the tree failed, ascending. */
  readonly repaired: readonly number[];
}

/** A collective that failed, with what is known of every member. Its code is that of the failure with the least rank. */
export class CollectiveError extends RpcError {
  /** What succeeded nevertheless. `value` is undefined where nothing did. */
  readonly result: CollectiveResult<unknown>;

  constructor(path: string, result: CollectiveResult<unknown>) {
    const [[rank, first]] = result.failed as unknown as [[number, RankFailure]];
    const failures = [...result.failed.values()];
    super({
      code: first.code,
      message: `${path}: ${failures.length} of ${failures.length + result.ok.length} ranks failed; rank ${rank}: ${first.message}`,
      origin: "remote",
      retryable: failures.every(({ retryable }) => retryable),
      notExecuted: result.ok.length === 0 && failures.every(({ executed }) => executed === "no"),
      method: path,
      ...(first.reason !== undefined && { reason: first.reason, data: first.data }),
    });
    this.result = result;
  }
}

/** The reply to the root as its caller sees it. `absent` are targets that no view has. */
export function resultOf(reply: Reply, absent: readonly CarriedFailure[]): CollectiveResult<unknown> {
  const ascending = (one: number, other: number) => one - other;
  const failed = [...reply.failed, ...absent].sort((one, other) => one.rank - other.rank);
  return {
    value: reply.value,
    ok: [...reply.ok].sort(ascending),
    failed: new Map(failed.map(({ rank, ...failure }) => [rank, failure])),
    repaired: [...reply.repaired].sort(ascending),
  };
}

/** Why a rank failed, without which one. */
export type Failure = Omit<CarriedFailure, "rank" | "executed">;

/** Makes one of two contributions; it may throw. Undefined where there are no outputs. */
type Reduce = (one: unknown, other: unknown) => unknown;

/** A rank that is in `ok` or in `failed`. */
const settled = 255;

/**
 * What is known of a run of ranks. Every rank settles once, as a part of the value or as a failure; what comes later is
 * ignored. So `ok` and `failed` are disjoint, and together the run when it is closed.
 */
export class Tally {
  readonly #ranks: readonly number[];
  readonly #reduce: Reduce | undefined;
  /**
   * By how many ways each rank may have got the call; `settled` when its outcome is known. A rank that no way leads to
   * certainly did not run. There are at most as many ways as the rank has ancestors, which is far below `settled`.
   */
  readonly #ways: Uint8Array;
  readonly #ok: number[] = [];
  readonly #failed: CarriedFailure[] = [];
  readonly #repaired: number[] = [];
  #value: unknown;
  #hasValue = false;
  #open: number;

  constructor(ranks: readonly number[], reduce: Reduce | undefined) {
    this.#ranks = ranks;
    this.#reduce = reduce;
    this.#ways = new Uint8Array(ranks.length);
    this.#open = ranks.length;
  }

  get isComplete(): boolean {
    return this.#open === 0;
  }

  get failures(): number {
    return this.#failed.length;
  }

  /** The call is sent to these ranks by another way. */
  begin(start: number, count = 1): void {
    this.#count(start, count, 1);
  }

  /** Nothing came by the way that was begun last. What earlier ways may have brought stays. */
  undo(start: number, count: number): void {
    this.#count(start, count, -1);
  }

  /** One rank failed. Without `executed`, no way to it means "no". */
  fail(index: number, failure: Failure, executed?: CarriedFailure["executed"]): void {
    const ways = this.#ways[index];
    if (ways === settled || ways === undefined) return;
    this.#settle(index);
    const rank = this.#ranks[index] as number;
    this.#failed.push({ ...failure, rank, executed: executed ?? (ways === 0 ? "no" : "maybe") });
  }

  /** The output of one rank. */
  succeed(index: number, value: unknown): void {
    if (this.#ways[index] === settled) return;
    const failure = this.#add(value);
    if (failure !== undefined) return this.fail(index, failure, "yes");
    this.#settle(index);
    this.#ok.push(this.#ranks[index] as number);
  }

  /**
   * Takes the reply of a child for its run, with a checked value. The child knows whether it ran itself. It does not
   * know what earlier ways have brought to the ranks below it, so its "no" becomes "maybe" for them.
   *
   * @throws Error where the reply is not about exactly this run: then it has no effect
   */
  merge(start: number, count: number, reply: Reply): void {
    const places = new Map<number, number>();
    for (let index = start; index < start + count; index++) places.set(this.#ranks[index] as number, index);
    const claim = (rank: number): number => {
      const index = places.get(rank);
      if (index === undefined || this.#ways[index] === settled)
        throw new Error(`the reply tells of rank ${rank} out of turn`);
      places.delete(rank);
      return index;
    };
    const ok = reply.ok.map(claim);
    const failed = reply.failed.map((failure) => [claim(failure.rank), failure] as const);
    const [left] = places.keys();
    if (left !== undefined) throw new Error(`the reply does not tell of rank ${left}`);
    for (const [index, failure] of failed) {
      const isDoubtful = failure.executed === "no" && index !== start && (this.#ways[index] as number) > 1;
      this.fail(index, failure, isDoubtful ? "maybe" : failure.executed);
    }
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
    this.#ways[index] = settled;
    this.#open--;
  }

  #count(start: number, count: number, change: 1 | -1): void {
    for (let index = start; index < start + count; index++) {
      const ways = this.#ways[index] as number;
      if (ways !== settled) this.#ways[index] = Math.max(0, ways + change);
    }
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
