import { type Priority, priorities } from "./priority.ts";

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
 * What waits for its turn, in two classes, bounded in number and bytes. `control` goes first; each class keeps the order
 * in which it came. When there is no room, one that is `control` puts out the latest of the others, since that one has
 * waited least. Nothing puts out `control`.
 *
 * Whatever happens to one that waits elsewhere (given up, out of time), its owner deletes it; all of that costs O(1).
 */
export class PriorityQueue<T extends Queued> {
  readonly #limits: QueueLimits;
  readonly #links = new Map<T, Link<T>>();
  readonly #classes: Readonly<Record<Priority, Chain<T>>> = { control: new Chain(), normal: new Chain() };
  /** How many wait. A plain field: each call looks at it. Only the queue writes it. */
  size = 0;
  #bytes = 0;

  constructor(limits: QueueLimits) {
    this.#limits = limits;
  }

  get bytes(): number {
    return this.#bytes;
  }

  sizeOf(priority: Priority): number {
    return this.#classes[priority].size;
  }

  /** The item of this class that has waited longest. */
  oldest(priority: Priority): T | undefined {
    return this.#classes[priority].first?.item;
  }

  /** The item of this class that came last. */
  newest(priority: Priority): T | undefined {
    return this.#classes[priority].last?.item;
  }

  /** The class whose turn it is; undefined when nothing waits. */
  get turn(): Priority | undefined {
    if (this.#classes.control.size > 0) return "control";
    return this.#classes.normal.size > 0 ? "normal" : undefined;
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
    this.size++;
    this.#bytes += item.waitingBytes;
    return out;
  }

  delete(item: T): boolean {
    const link = this.#links.get(item);
    if (link === undefined) return false;
    this.#links.delete(item);
    this.#classes[item.priority].cut(link);
    this.size--;
    this.#bytes -= item.waitingBytes;
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
    let size = this.size;
    let bytes = this.#bytes;
    let link = priority === "control" ? this.#classes.normal.last : undefined;
    while (size >= maxCalls || (bytes + waitingBytes > maxBytes && size > 0)) {
      if (link === undefined) return undefined;
      out.push(link.item);
      size--;
      bytes -= link.item.waitingBytes;
      link = link.previous;
    }
    return out;
  }
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
