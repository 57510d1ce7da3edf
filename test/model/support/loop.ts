import { realTimers } from "../../../src/base/time/real-timers.ts";

/**
 * What waits for its turn or its time. It can be told what Node's timers can; a loop that is turned by hand is kept
 * alive by nobody.
 */
export class Task {
  readonly fire: () => void;
  /** 0: a turn of the loop, else a timer's moment. */
  readonly atMs: number;
  /** The schedule's own, no engine's. */
  readonly own: boolean;
  /** Where it was armed, when somebody wants to know. */
  readonly where: string | undefined;

  constructor(fire: () => void, atMs: number, own: boolean, where: string | undefined) {
    this.fire = fire;
    this.atMs = atMs;
    this.own = own;
    this.where = where;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }
}

const realImmediate = globalThis.setImmediate;

/** Until every microtask has run, those that microtasks bring included. */
export const settled = (): Promise<void> => new Promise((resolve) => realImmediate(resolve));

/**
 * The event loop of everything under test, turned by hand: while it is installed, `setImmediate`, `setTimeout` and
 * `performance.now` are its own, and nothing runs but what is told to. Between two tasks the microtasks run dry, as
 * they do in Node.
 */
export class Loop {
  nowMs = 1000;
  readonly turns: Task[] = [];
  /** Whether tasks remember where they come from. */
  traces = false;
  #timers: Task[] = [];
  #restore: (() => void) | undefined;

  install(random: () => number): void {
    const real = {
      setImmediate: globalThis.setImmediate,
      clearImmediate: globalThis.clearImmediate,
      setTimeout: globalThis.setTimeout,
      clearTimeout: globalThis.clearTimeout,
    };
    const now = performance.now;
    const realRandom = Math.random;
    Object.assign(globalThis, {
      setImmediate: (fire: (...args: unknown[]) => void, ...args: unknown[]) =>
        this.turn(() => fire(...args)),
      clearImmediate: (task: Task | undefined) => remove(this.turns, task),
      setTimeout: (fire: (...args: unknown[]) => void, ms = 0, ...args: unknown[]) =>
        this.timer(ms, () => fire(...args)),
      clearTimeout: (task: Task | undefined) => remove(this.#timers, task),
    });
    performance.now = () => this.nowMs;
    const { setImmediate, clearImmediate, setTimeout, clearTimeout } = globalThis;
    const ownTimers = { ...realTimers };
    // A tick is a task, too: what follows it must not run before the schedule says so.
    const nextTick = (fire: (...args: unknown[]) => void, ...args: unknown[]) =>
      void this.turn(() => fire(...args));
    Object.assign(realTimers, {
      ...{ setImmediate, clearImmediate, setTimeout, clearTimeout, nextTick },
      now: performance.now,
    });
    Math.random = random;
    this.#restore = () => {
      Object.assign(globalThis, real);
      Object.assign(realTimers, ownTimers);
      performance.now = now;
      Math.random = realRandom;
    };
  }

  uninstall(): void {
    this.#restore?.();
  }

  turn(fire: () => void): Task {
    const task = new Task(fire, 0, false, this.#here());
    this.turns.push(task);
    return task;
  }

  timer(ms: number, fire: () => void, own = false): Task {
    // As Node has it: a millisecond at least, and whole ones.
    const task = new Task(fire, this.nowMs + Math.max(1, Math.trunc(ms)), own, this.#here());
    this.#timers.push(task);
    return task;
  }

  #here(): string | undefined {
    return this.traces ? new Error("armed").stack : undefined;
  }

  /** Timers of engines that are armed. */
  get timers(): Task[] {
    return this.#timers.filter(({ own }) => !own);
  }

  get nextTimerMs(): number {
    return this.#timers.reduce((least, { atMs }) => Math.min(least, atMs), Number.POSITIVE_INFINITY);
  }

  /** Takes a turn out, to be fired. */
  takeTurn(index: number): Task {
    return this.turns.splice(index, 1)[0] as Task;
  }

  /** Takes out the timer that is due first, if one is. */
  takeDue(): Task | undefined {
    let first: Task | undefined;
    for (const timer of this.#timers) {
      if (timer.atMs <= this.nowMs && (first === undefined || timer.atMs < first.atMs)) first = timer;
    }
    if (first !== undefined) remove(this.#timers, first);
    return first;
  }

  /** Forgets the schedule's own timers: nobody waits for them any more. */
  dropOwn(): void {
    this.#timers = this.#timers.filter(({ own }) => !own);
  }
}

function remove(tasks: Task[], task: Task | undefined): void {
  const index = task === undefined ? -1 : tasks.indexOf(task);
  if (index >= 0) tasks.splice(index, 1);
}
