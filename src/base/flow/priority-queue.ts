import { isMoreUrgent, type Priority, priorities, Turns, turns } from "./priority.ts";

/** How many calls wait by priority, and how many bytes their inputs hold. */
export type WaitingLevels = Readonly<Record<Priority, { readonly calls: number; readonly bytes: number }>>;

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

/**
 * What waits for its turn, in four classes, bounded in number and bytes. `control` goes first; the others take turns by
 * weight, each class in the order it came. When there is no room, room is shared by weight too: who comes may put out
 * the latest of the class that has most above its share, since that one has waited least. So a flood of urgent calls
 * cannot drive out all that is not urgent: a class keeps its share, and one call at least.
 *
 * Whatever happens to one that waits elsewhere (given up, out of time), its owner deletes it; all of that costs O(1).
 */
export class PriorityQueue<T extends Queued> {
  readonly #limits: QueueLimits;
  readonly #links = new Map<T, Link<T>>();
  readonly #classes: Readonly<Record<Priority, Chain<T>>> = {
    control: new Chain(),
    high: new Chain(),
    normal: new Chain(),
    low: new Chain(),
  };
  readonly #turns = new Turns();
  readonly #bytesOf: Record<Priority, number> = { control: 0, high: 0, normal: 0, low: 0 };
  #bytes = 0;
  /** One for all turns: each would make a closure of its own otherwise. */
  readonly #waits = (priority: Priority): boolean => this.#classes[priority].size > 0;

  constructor(limits: QueueLimits) {
    this.#limits = limits;
  }

  get size(): number {
    return this.#links.size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  sizeOf(priority: Priority): number {
    return this.#classes[priority].size;
  }

  bytesOf(priority: Priority): number {
    return this.#bytesOf[priority];
  }

  get levels(): WaitingLevels {
    const level = (priority: Priority) => ({ calls: this.sizeOf(priority), bytes: this.bytesOf(priority) });
    return {
      control: level("control"),
      high: level("high"),
      normal: level("normal"),
      low: level("low"),
    };
  }

  /** The item of this class that has waited longest. */
  oldest(priority: Priority): T | undefined {
    return this.#classes[priority].first?.item;
  }

  /** The item of this class that came last. */
  newest(priority: Priority): T | undefined {
    return this.#classes[priority].last?.item;
  }

  /**
   * Lets `item` wait. What had to go for it is returned, and is not in the queue any more; undefined when there was no
   * room even so, and nothing has changed. One that is longer than all the room there is waits only when nothing else
   * does: it must not be impossible.
   */
  push(item: T): T[] | undefined {
    const out = this.roomFor(item);
    if (out === undefined) return undefined;
    for (const each of out) this.delete(each);
    this.#links.set(item, this.#classes[item.priority].append(item));
    this.#bytes += item.waitingBytes;
    this.#bytesOf[item.priority] += item.waitingBytes;
    return out;
  }

  /** The next in turn, which leaves the queue. */
  shift(): T | undefined {
    const priority = this.takeTurn();
    if (priority === undefined) return undefined;
    const next = this.oldest(priority) as T;
    this.delete(next);
    return next;
  }

  /** The class whose turn it is, which is its turn then. Which of it goes, the asker chooses. */
  takeTurn(): Priority | undefined {
    return this.#turns.next(this.#waits);
  }

  delete(item: T): boolean {
    const link = this.#links.get(item);
    if (link === undefined) return false;
    this.#links.delete(item);
    this.#classes[item.priority].cut(link);
    this.#bytes -= item.waitingBytes;
    this.#bytesOf[item.priority] -= item.waitingBytes;
    return true;
  }

  /** All that wait, by class, each in its order. */
  *[Symbol.iterator](): IterableIterator<T> {
    for (const priority of priorities) yield* this.#classes[priority];
  }

  /** What would have to go for `item` to come in; undefined when it cannot. */
  roomFor({ priority, waitingBytes }: T): T[] | undefined {
    const { maxCalls, maxBytes } = this.#limits;
    const out: T[] = [];
    if (this.size < maxCalls && this.#bytes + waitingBytes <= maxBytes) return out;
    let bytes = this.#bytes;
    const fits = () => {
      const size = this.size - out.length;
      return size < maxCalls && (bytes + waitingBytes <= maxBytes || size === 0);
    };
    if (fits()) return out;
    // How many of each class would be there, and the latest of them.
    const counts: Record<string, number> = {};
    const lasts: Record<string, Link<T> | undefined> = {};
    for (const each of priorities) {
      counts[each] = this.#classes[each].size + (each === priority ? 1 : 0);
      lasts[each] = this.#classes[each].last;
    }
    while (!fits()) {
      const from = whoGives(priority, counts);
      const link = from === undefined ? undefined : lasts[from];
      if (from === undefined || link === undefined) return undefined;
      lasts[from] = link.previous;
      counts[from] = (counts[from] as number) - 1;
      out.push(link.item);
      bytes -= link.item.waitingBytes;
    }
    return out;
  }
}

/**
 * The class that one of `comer`'s may put another out of, given how many of each class there would be with it: the
 * class that has most for its weight, but not the last of its calls, unless the comer is more urgent and would be the
 * first of its own.
 */
function whoGives(comer: Priority, counts: Readonly<Record<string, number>>): Priority | undefined {
  const count = (priority: Priority) => counts[priority] as number;
  // Control is rare, or it would not be control: it puts out anything, and nothing puts it out.
  const others = priorities.filter((each) => each !== "control") as Exclude<Priority, "control">[];
  let most: Exclude<Priority, "control"> | undefined;
  for (const each of others) {
    if (count(each) < 2) continue;
    // Where two are equal, the less urgent one gives.
    if (most === undefined || count(each) / turns[each] >= count(most) / turns[most]) most = each;
  }
  if (most !== undefined && most !== comer) return most;
  if (count(comer) > 1 && comer !== "control") return undefined;
  return others.reverse().find((each) => each !== comer && count(each) > 0 && isMoreUrgent(comer, each));
}

/** An item of a chain, with its neighbours. */
interface Link<T> {
  readonly item: T;
  next: Link<T> | undefined;
  previous: Link<T> | undefined;
}

/**
 * A doubly linked list. Appending costs O(1), and so does cutting an item out, wherever it is.
 */
class Chain<T> {
  #first: Link<T> | undefined;
  #last: Link<T> | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get first(): Link<T> | undefined {
    return this.#first;
  }

  get last(): Link<T> | undefined {
    return this.#last;
  }

  append(item: T): Link<T> {
    const link: Link<T> = { item, next: undefined, previous: this.#last };
    if (this.#last === undefined) this.#first = link;
    else this.#last.next = link;
    this.#last = link;
    this.#size++;
    return link;
  }

  /** Removes a link of this chain. It is in no chain afterwards. */
  cut(link: Link<T>): void {
    const { next, previous } = link;
    if (previous === undefined) this.#first = next;
    else previous.next = next;
    if (next === undefined) this.#last = previous;
    else next.previous = previous;
    link.next = undefined;
    link.previous = undefined;
    this.#size--;
  }

  *[Symbol.iterator](): IterableIterator<T> {
    for (let link = this.#first; link !== undefined; link = link.next) yield link.item;
  }
}
