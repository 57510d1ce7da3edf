import { seeded } from "../../matrix/random.ts";
import { ModelFabric, type Nature, type Step } from "./fabric.ts";
import { Loop, settled } from "./loop.ts";

/** What the fabric does beyond its contract, each with its chance for a message. */
export interface Faults {
  readonly lost: number;
  readonly repeated: number;
  readonly overtaken: number;
}

export const noFaults: Faults = { lost: 0, repeated: 0, overtaken: 0 };

/**
 * One order of events, drawn from a seed: which of the things that could happen next does. The same seed gives the same
 * schedule, whatever the machine is doing.
 */
export class Schedule {
  readonly seed: number;
  readonly loop = new Loop();
  readonly random: () => number;
  readonly fabric: ModelFabric;
  readonly log: string[] = [];
  /** Turns of engines' loops that were taken. */
  turns = 0;
  faults = noFaults;
  /** The chance that posted work fails, as providers may. */
  failing = 0;
  #logs: boolean;

  constructor(seed: number, logs: boolean) {
    this.seed = seed;
    this.#logs = logs;
    this.loop.traces = logs;
    this.random = seeded(seed);
    this.fabric = new ModelFabric(this.pick(natures));
  }

  // ---- choices ----------------------------------------------------------------------------------------------------

  below(count: number): number {
    return Math.floor(this.random() * count);
  }

  between(low: number, high: number): number {
    return low + this.below(high - low + 1);
  }

  chance(share: number): boolean {
    return this.random() < share;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)] as T;
  }

  note(event: () => string): void {
    if (!this.#logs) return;
    // Incarnations are random, and the same seed shall print the same schedule.
    this.log.push(
      `${this.loop.nowMs.toFixed(1)} ms  ${event().replaceAll(/peer [0-9a-f]+ over/g, "peer over")}`,
    );
  }

  // ---- what happens by itself -------------------------------------------------------------------------------------

  /** One thing that was bound to happen: a turn of some engine's loop, a step of the fabric, or time passes. */
  async step(): Promise<void> {
    const { loop, fabric } = this;
    const turns = loop.turns.length > 0 ? 6 : 0;
    const steps = fabric.steps.length > 0 ? 6 : 0;
    // Engines that have nothing to do go on polling until time passes.
    const drawn = this.random() * (turns + steps + (steps > 0 ? 1 : 4));
    if (drawn < turns) await this.#turn();
    else if (drawn < turns + steps) this.#stepFabric();
    else await this.pass(this.pick([0.2, 0.6, 1, 3, 7, 15]));
  }

  async #turn(): Promise<void> {
    const task = this.loop.takeTurn(this.below(this.loop.turns.length));
    task.fire();
    this.turns++;
    await settled();
  }

  #stepFabric(): void {
    const { fabric, faults } = this;
    const ready = fabric.ready();
    let index = this.pick(ready);
    const { lane, isMessage } = fabric.steps[index] as Step;
    if (isMessage && this.chance(faults.overtaken)) {
      const same = fabric.steps.flatMap((step, at) => (step.lane === lane ? [at] : []));
      index = this.pick(same);
    }
    const step = fabric.steps[index] as Step;
    const isLost = isMessage && this.chance(faults.lost);
    const isRepeated = isMessage && !isLost && this.chance(faults.repeated);
    if (!isRepeated) fabric.steps.splice(index, 1);
    const status = !isMessage && this.chance(this.failing) ? 1 : 0;
    this.note(
      () => `${step.what}${isLost ? ": lost" : isRepeated ? ": and again" : status > 0 ? ": fails" : ""}`,
    );
    if (!isLost) step.run(status === 0 ? 0 : 5);
  }

  /** Time passes, and what is due happens, in order; late, when so much passes at once. */
  async pass(ms: number, atOnce = false): Promise<void> {
    const { loop } = this;
    const untilMs = loop.nowMs + ms;
    if (atOnce) loop.nowMs = untilMs;
    for (;;) {
      if (!atOnce && loop.nextTimerMs <= untilMs) loop.nowMs = Math.max(loop.nowMs, loop.nextTimerMs);
      const task = loop.takeDue();
      if (task === undefined) break;
      task.fire();
      await settled();
    }
    loop.nowMs = untilMs;
  }

  /**
   * Lets all that is on the way arrive and each engine have its turns, until nothing moves but time; or not even that
   * for `ms`.
   */
  async calm(ms: number, done: () => boolean): Promise<boolean> {
    const untilMs = this.loop.nowMs + ms;
    let waitMs = 0.6;
    while (!done()) {
      for (let moved = true; moved; ) {
        moved = this.fabric.steps.length > 0;
        if (moved) waitMs = 0.6;
        while (this.fabric.steps.length > 0) this.#stepFabric();
        for (let turns = this.loop.turns.length; turns > 0; turns--) {
          if (this.loop.turns.length === 0) break;
          await this.#turn();
        }
        moved ||= this.fabric.steps.length > 0;
      }
      if (done()) return true;
      if (this.loop.nowMs >= untilMs) {
        // What has come true last is told in microtasks, which run dry before the next task.
        await settled();
        return done();
      }
      // Engines poll for a moment before they sleep, and longer when they close.
      const nextMs = Math.max(0.6, this.loop.nextTimerMs - this.loop.nowMs);
      await this.pass(
        Math.min(this.loop.turns.length > 0 ? Math.min(waitMs, nextMs) : nextMs, untilMs - this.loop.nowMs),
      );
      waitMs = Math.min(waitMs * 2, 50);
    }
    return true;
  }
}

/** As `mem`, `shm`, `tcp` and `verbs` are. */
const natures: readonly Nature[] = [
  { reportsDeath: true, revokesKeys: true, immediateBytes: 8 },
  { reportsDeath: true, revokesKeys: true, immediateBytes: 0 },
  { reportsDeath: false, revokesKeys: false, immediateBytes: 0 },
  { reportsDeath: false, revokesKeys: true, immediateBytes: 0 },
];
