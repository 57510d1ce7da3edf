/** A value that is there already, or a promise of it. */
export type MaybePromise<T> = T | PromiseLike<T>;

/** Whether `value` comes later. */
export function isLater<T>(value: MaybePromise<T>): value is PromiseLike<T> {
  return (
    typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function"
  );
}

/**
 * Calls `next` with a value, at once if the value is there. So a call with a synchronous handler and synchronous
 * schemas makes no promise at a member. An error of `next` is thrown or rejects, accordingly.
 */
export function whenThere<T, R>(
  value: MaybePromise<T>,
  next: (value: T) => MaybePromise<R>,
): MaybePromise<R> {
  return isLater(value) ? value.then(next) : next(value);
}
