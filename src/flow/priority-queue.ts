import { isMoreUrgent, type Priority, priorities, turns } from "./priority.ts";

/** What waits in a queue. */
export interface Queued {
  readonly priority: Priority;
  /** What it holds while it waits, in bytes: about as much as it will take to send, or took to arrive. */
  readonly waitingBytes: number;
}

/** Bounds of a queue. */
export interface QueueLimits {
  readonly maxCalls: number;
  readonly maxBytes: number;
}

const shared = ["high", "normal", "low"] as const;

/**
 * What waits for its turn, in four classes, bounded in number and bytes. `control` goes first; the others take turns by weight (weighted round robin),
 * each class in the order it came. When there is no room, who comes may put out what is less urgent, the latest of it first: it has waited least.
 *
 * Whatever happens to one that waits elsewhere (given up, out of time), its owner deletes it; all of that costs O(1).
 */
export class PriorityQueue<T extends Queued> {
  readonly #limits: QueueLimits;
  readonly #classes: Readonly<Record<Priority, Set<T>>> = {
    control: new Set(),
    high: new Set(),
    normal: new Set(),
    low: new Set(),
  };
  /** Turns that each class still has in this round. */
  readonly #left: Record<Exclude<Priority, "control">, number> = { ...turns };
  #size = 0;
  #bytes = 0;

  constructor(limits: QueueLimits) {
    this.#limits = limits;
  }

  get size(): number {
    return this.#size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Lets `item` wait. What had to go for it is returned, and is not in the queue any more; undefined when there was no room even so, and nothing has
   * changed. One that is longer than all the room there is waits only when nothing else does: it must not be impossible.
   */
  push(item: T): T[] | undefined {
    const out = this.#makeRoom(item);
    if (out === undefined) return undefined;
    for (const each of out) this.delete(each);
    this.#classes[item.priority].add(item);
    this.#size++;
    this.#bytes += item.waitingBytes;
    return out;
  }

  /** The next in turn, which leaves the queue. */
  shift(): T | undefined {
    const next = this.#next();
    if (next === undefined) return undefined;
    this.delete(next);
    return next;
  }

  delete(item: T): boolean {
    if (!this.#classes[item.priority].delete(item)) return false;
    this.#size--;
    this.#bytes -= item.waitingBytes;
    return true;
  }

  /** All that wait, by class, each in its order. */
  *[Symbol.iterator](): IterableIterator<T> {
    for (const priority of priorities) yield* this.#classes[priority];
  }

  #next(): T | undefined {
    const { control } = this.#classes;
    if (control.size > 0) return first(control);
    if (this.#size === 0) return undefined;
    for (;;) {
      for (const priority of shared) {
        const waiting = this.#classes[priority];
        if (waiting.size === 0 || this.#left[priority] === 0) continue;
        this.#left[priority]--;
        return first(waiting);
      }
      // All turns of those that wait are used up: a new round.
      Object.assign(this.#left, turns);
    }
  }

  #makeRoom({ priority, waitingBytes }: T): T[] | undefined {
    const { maxCalls, maxBytes } = this.#limits;
    const out: T[] = [];
    let bytes = this.#bytes;
    const fits = () => {
      const size = this.#size - out.length;
      return size < maxCalls && (bytes + waitingBytes <= maxBytes || size === 0);
    };
    if (fits()) return out;
    for (let i = priorities.length - 1; i >= 0; i--) {
      const other = priorities[i] as Priority;
      if (!isMoreUrgent(priority, other)) break;
      for (const item of [...this.#classes[other]].reverse()) {
        out.push(item);
        bytes -= item.waitingBytes;
        if (fits()) return out;
      }
    }
    return undefined;
  }
}

function first<T>(items: Set<T>): T | undefined {
  for (const item of items) return item;
  return undefined;
}
