import { AsyncResource } from "node:async_hooks";

/*
 * Async contexts, by `AsyncResource` alone. Before Node 24 an `AsyncLocalStorage` keeps its store in the running
 * resource, and new resources copy it. Since Node 24 a resource keeps the frame of contexts in which it was made, and
 * its scope enters and leaves that frame. A resource made outside every user's context is right in both cases.
 */

/** Made when the module is loaded, outside every user's context. No code of a user runs in it, so it stays clean. */
const root = new AsyncResource("cinnabar");

/** Unused resources, made outside every user's context. */
const unused: AsyncResource[] = [];
/** The number made at once: leaving the context costs as much as making one. */
const madeAtOnce = 64;

function makeUnused(): void {
  for (let count = 0; count < madeAtOnce; count++) unused.push(new AsyncResource("cinnabar"));
}

/**
 * Runs `work` outside every user's async context. Users' code may run in it: each run has a new resource, so a context
 * that such code enters with `AsyncLocalStorage.enterWith` ends with the run. It costs 50 ns.
 */
export function runDetached<A extends unknown[], R>(work: (...args: A) => R, ...args: A): R {
  if (unused.length === 0) root.runInAsyncScope(makeUnused);
  return (unused.pop() as AsyncResource).runInAsyncScope(work, undefined, ...args);
}

/**
 * Sets a timer or an immediate outside every user's async context; no code of a user may run in `arm`. Both inherit the
 * context in which they were set. Without this function, a turn that one handler started would run other handlers in
 * its context, and they would see its stores (a trace, a user). It costs 10 ns.
 */
export function armDetached<A extends unknown[], R>(arm: (...args: A) => R, ...args: A): R {
  return root.runInAsyncScope(arm, undefined, ...args);
}

/**
 * The current async context, for work that continues in calls from others: `here.runInAsyncScope(work)`. It costs 50
 * ns.
 */
export function contextHere(): AsyncResource {
  return new AsyncResource("cinnabar");
}

/** `listener` as a function that runs in the current async context, regardless of its caller. */
export function boundHere<A extends unknown[], R>(listener: (...args: A) => R): (...args: A) => R {
  const here = contextHere();
  return (...args) => here.runInAsyncScope(listener, undefined, ...args);
}
