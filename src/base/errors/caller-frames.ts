/*
 * A stack that is made at the arrival of an answer has no frame of the caller. V8 finds the functions that await a
 * promise while the reaction that settles it runs, so the stack is made there. A successful call costs no more.
 */

/** Throws `error` with the functions that await the caller's promise in its `stack`. Call it in that reaction. */
export function throwWithFrames(error: Error): never {
  Error.captureStackTrace(error, throwWithFrames);
  throw error;
}

const settled = Promise.resolve();
const wait = (): void => {};

/**
 * A promise that is rejected with `error` with these frames. Resolve the caller's promise with it: that promise follows
 * this one in the first step, and the stack is made in the second.
 */
export function rejectedWithFrames(error: Error): Promise<never> {
  return settled.then(wait).then(() => throwWithFrames(error));
}
