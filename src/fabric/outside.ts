import { AsyncResource } from "node:async_hooks";

/** Made when the module is loaded, where nobody's work is going on. */
const resource = new AsyncResource("cinnabar");

/**
 * Runs `work` in no async context of a user's. Timers and immediates carry on the context they were set in: an engine's turn that one request's handler set
 * off would run the handlers of others in the first one's context, and what it stores there (a trace, a user) would be theirs. Costs 40 ns.
 */
export function outside<A extends unknown[], R>(work: (...args: A) => R, ...args: A): R {
  return resource.runInAsyncScope(work, undefined, ...args);
}
