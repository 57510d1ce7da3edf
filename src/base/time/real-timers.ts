import { performance } from "node:perf_hooks";
import * as timers from "node:timers";

/**
 * The process's own timers and time, taken when the module is loaded. The parts that make the engine run use them:
 * turns of the loop, liveness, opening and closing. Fake timers (vitest, jest, sinon, node:test) replace the globals. A
 * turn that waited for fake timers would never come, and messages would stand still until the test advances its time.
 *
 * An object, because a test of the engine replaces its members (`test/model`).
 */
export const realTimers = {
  setImmediate: timers.setImmediate,
  clearImmediate: timers.clearImmediate,
  setTimeout: timers.setTimeout,
  clearTimeout: timers.clearTimeout,
  nextTick: process.nextTick,
  /** Milliseconds since the process started. */
  now: performance.now.bind(performance),
};
