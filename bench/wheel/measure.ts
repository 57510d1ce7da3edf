import { setTimeout as delay } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Deadlines, Spread, Subject } from "./subjects.ts";

setFlagsFromString("--expose-gc");
const gc = runInNewContext("gc") as () => void;

/**
 * One subject with so many deadlines pending, once. Times are the processor's, so that what else the machine does is
 * not among them.
 */
export interface Reading {
  readonly armNs: number;
  readonly disarmNs: number;
  /** Time of one deadline that passes, when all pending ones pass at once. */
  readonly expiryNs: number;
  /** Beside the call itself, in whose fields the wheel keeps its links. */
  readonly bytesPerPending: number;
}

/** What a subject costs while nothing is due. */
export interface IdleReading {
  readonly wakes: number;
  /** Share of one processor. */
  readonly share: number;
}

/** Armed and disarmed again beside those that are pending. */
const comings = 20_000;

export async function measure(subject: Subject, pending: number): Promise<Reading> {
  const deadlines = subject.open();
  deadlines.prepare(pending);
  const before = heapBytes();
  for (let i = 0; i < pending; i++) deadlines.arm(i, farMs(subject.spread));
  const bytesPerPending = (heapBytes() - before) / pending;
  const { armNs, disarmNs } = measureComings(deadlines, subject.spread, pending);
  for (let i = 0; i < pending; i++) deadlines.disarm(i);
  return { armNs, disarmNs, expiryNs: await measureExpiry(deadlines, pending), bytesPerPending };
}

/** `forMs` is more than the wheel's revolution: whatever looks at all that is pending once in each would show. */
export async function measureIdle(subject: Subject, pending: number, forMs: number): Promise<IdleReading> {
  const deadlines = subject.open();
  deadlines.prepare(pending);
  for (let i = 0; i < pending; i++) deadlines.arm(i, farMs(subject.spread));
  gc();
  // What arming has set off ends before.
  await delay(50);
  const { wakes } = deadlines;
  const cpu = cpuNs();
  const begun = performance.now();
  await delay(forMs);
  const share = (cpuNs() - cpu) / 1e6 / (performance.now() - begun);
  for (let i = 0; i < pending; i++) deadlines.disarm(i);
  return { wakes: deadlines.wakes - wakes, share };
}

/** No deadline of these passes while anything is measured. */
function farMs(spread: Spread): number {
  return spread === "one length" ? 60_000 : 30_000 + Math.floor(Math.random() * 60_000);
}

function heapBytes(): number {
  gc();
  gc();
  return process.memoryUsage().heapUsed;
}

function measureComings(deadlines: Deadlines, spread: Spread, pending: number) {
  // New, as calls are.
  deadlines.prepare(pending + comings);
  const lengths = Array.from({ length: comings }, () => farMs(spread));
  const begun = cpuNs();
  for (let i = 0; i < comings; i++) deadlines.arm(pending + i, lengths[i] as number);
  const armed = cpuNs();
  // In the order in which they came, as calls end.
  for (let i = 0; i < comings; i++) deadlines.disarm(pending + i);
  return { armNs: (armed - begun) / comings, disarmNs: (cpuNs() - armed) / comings };
}

/** All are due before the loop turns, so that what is measured is the work and not the waiting. */
async function measureExpiry(deadlines: Deadlines, count: number): Promise<number> {
  deadlines.prepare(count);
  const { passed } = deadlines;
  for (let i = 0; i < count; i++) deadlines.arm(i, 1 + (i % 50));
  for (const until = performance.now() + 60; performance.now() < until; );
  const begun = cpuNs();
  while (deadlines.passed - passed < count) await new Promise(setImmediate);
  return (cpuNs() - begun) / count;
}

/** Processor time of the process. */
function cpuNs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) * 1000;
}
