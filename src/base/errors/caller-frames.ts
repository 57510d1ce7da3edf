/*
 * A stack that is made where an answer arrives has no frame of the caller. V8 finds the functions that await a promise
 * while a reaction runs that settles it, so the stack is made there. A call that succeeds costs nothing more.
 */

/** Throws `error` with the functions that await the caller's promise in its `stack`. Call it in that reaction. */
export function throwWithFrames(error: Error): never {
  Error.captureStackTrace(error, throwWithFrames);
  throw error;
}

const settled = Promise.resolve();
const wait = (): void => {};

/**
 * A promise that is rejected with `error` in that manner. The caller's promise is resolved with it: it follows this one
 * in the first step, and the stack is made in the second.
 */
export function rejectedWithFrames(error: Error): Promise<never> {
  return settled.then(wait).then(() => throwWithFrames(error));
}
