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
