import { AsyncResource } from "node:async_hooks";

/*
 * Async contexts, by `AsyncResource` alone. Before Node 24 an `AsyncLocalStorage` keeps its store in the resource that
 * runs, and resources that are made there copy it. Since then a resource keeps the frame of contexts that it was made in,
 * and its scope enters that frame and leaves it. A resource made outside every user's context is right in both.
 */

/** Made when the module is loaded, outside every user's context. No code of a user runs in it, which could leave something. */
const root = new AsyncResource("cinnabar");

/** Resources made outside every user's context, of which none has run anything. */
const unused: AsyncResource[] = [];
/** So many are made at once: to go outside costs as much as to make one. */
const madeAtOnce = 64;

function makeUnused(): void {
  for (let count = 0; count < madeAtOnce; count++) unused.push(new AsyncResource("cinnabar"));
}

/**
 * Runs `work` outside every user's async context. Users' code may run in it: what such code enters with
 * `AsyncLocalStorage.enterWith` ends with the run, because each run has a resource of its own. It costs 50 ns.
 */
export function runDetached<A extends unknown[], R>(work: (...args: A) => R, ...args: A): R {
  if (unused.length === 0) root.runInAsyncScope(makeUnused);
  return (unused.pop() as AsyncResource).runInAsyncScope(work, undefined, ...args);
}

/**
 * Sets a timer or an immediate outside every user's async context; no code of a user may run in `arm`. Both inherit the
 * context in which they were set. Without this, a turn that one handler started would run other handlers in its context,
 * and they would see what it stored there (a trace, a user). It costs 10 ns.
 */
export function armDetached<A extends unknown[], R>(arm: (...args: A) => R, ...args: A): R {
  return root.runInAsyncScope(arm, undefined, ...args);
}

/** The async context of now, for work that goes on when others call: `here.runInAsyncScope(work)`. It costs 50 ns. */
export function contextHere(): AsyncResource {
  return new AsyncResource("cinnabar");
}

/** `listener` as a function that runs in the async context of now, whoever calls it. */
export function boundHere<A extends unknown[], R>(listener: (...args: A) => R): (...args: A) => R {
  const here = contextHere();
  return (...args) => here.runInAsyncScope(listener, undefined, ...args);
}
