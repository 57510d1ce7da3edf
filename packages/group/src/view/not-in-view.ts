import { RpcError } from "cinnabar/standard";

/** A member is not in the view any more: it left, it was removed, or another process has its rank. */
export class NotInViewError extends Error {
  readonly group: string;
  readonly rank: number;
  /** The version of the view that is without it. */
  readonly version: number;

  constructor(group: string, rank: number, version: number) {
    super(`group "${group}": rank ${rank} is not in view ${version}, or it is another process there`);
    this.name = "NotInViewError";
    this.group = group;
    this.rank = rank;
    this.version = version;
  }
}

/** What calls to that member fail with. */
export function notInViewFailure(group: string, rank: number, version: number): RpcError {
  const cause = new NotInViewError(group, rank, version);
  return new RpcError({ code: "failed_precondition", message: cause.message, cause });
}

/**
 * The `NotInViewError` behind the error of a call; undefined where another cause ended it.
 *
 * @example
 * const result = await group.at(3).client(Store).read.result({ key });
 * if (!result.ok && notInView(result.error)) await group.when(({ version }) => version > seen);
 */
export function notInView(error: unknown): NotInViewError | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause)
    if (cause instanceof NotInViewError) return cause;
  return undefined;
}
