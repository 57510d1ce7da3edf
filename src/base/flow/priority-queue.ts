import { type Priority, priorities } from "./priority.ts";

/** An item that waits in a queue. */
export interface Queued {
  readonly priority: Priority;
  /** The bytes that it holds while it waits: about the size of its message. */
  readonly waitingBytes: number;
}

/** Bounds of a queue. */
export interface QueueLimits {
  readonly maxCalls: number;
  readonly maxBytes: number;
}

/**
 * Items that wait for their turn, in two classes, bounded in number and bytes. `control` goes first; each class keeps
 * its order of arrival. When there is no room, a `control` item displaces the latest of the others, which has waited
 * least. A `control` item is never displaced.
 *
 * When an item ends elsewhere (abandoned, out of time), its owner deletes it. Every operation costs O(1).
 */
export class PriorityQueue<T extends Queued> {
  readonly #limits: QueueLimits;
  readonly #links = new Map<T, QueueLink<T>>();
  readonly #classes: Readonly<Record<Priority, Chain<T>>> = { control: new Chain(), normal: new Chain() };
  /** The items, and the bytes that they hold. Only the queue writes them. */
  size = 0;
  bytes = 0;

  constructor(limits: QueueLimits) {
    this.#limits = limits;
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

  /** The class that is next; undefined when the queue is empty. */
  get turn(): Priority | undefined {
    if (this.#classes.control.size > 0) return "control";
    return this.#classes.normal.size > 0 ? "normal" : undefined;
  }

  /**
   * Adds `item`. Returns the displaced items, which are no longer in the queue. Returns undefined, and changes nothing,
   * when there was still no room. An item that is longer than all the room is accepted only into an empty queue, so
   * that it is not impossible.
   */
  push(item: T): T[] | undefined {
    const out = this.roomFor(item);
    if (out === undefined) return undefined;
    for (const each of out) this.delete(each);
    this.#links.set(item, this.#classes[item.priority].append(item));
    this.size++;
    this.bytes += item.waitingBytes;
    return out;
  }

  delete(item: T): boolean {
    const link = this.#links.get(item);
    if (link === undefined) return false;
    this.#links.delete(item);
    this.#classes[item.priority].cut(link);
    this.size--;
    this.bytes -= item.waitingBytes;
    return true;
  }

  /** All items, by class, each in its order. */
  *[Symbol.iterator](): IterableIterator<T> {
    for (const priority of priorities) yield* this.#classes[priority];
  }

  /** The items that would be displaced by `item`; undefined when it cannot be added. */
  roomFor({ priority, waitingBytes }: T): T[] | undefined {
    const { maxCalls, maxBytes } = this.#limits;
    const out: T[] = [];
    let size = this.size;
    let bytes = this.bytes;
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
interface QueueLink<T> {
  readonly item: T;
  next: QueueLink<T> | undefined;
  previous: QueueLink<T> | undefined;
}

/**
 * A doubly linked list. Appending an item and cutting out any item cost O(1).
 */
class Chain<T> {
  /** Only the chain writes these. */
  first: QueueLink<T> | undefined;
  last: QueueLink<T> | undefined;
  size = 0;

  append(item: T): QueueLink<T> {
    const link: QueueLink<T> = { item, next: undefined, previous: this.last };
    if (this.last === undefined) this.first = link;
    else this.last.next = link;
    this.last = link;
    this.size++;
    return link;
  }

  /** Removes a link of this chain. It is in no chain afterwards. */
  cut(link: QueueLink<T>): void {
    const { next, previous } = link;
    if (previous === undefined) this.first = next;
    else previous.next = next;
    if (next === undefined) this.last = previous;
    else next.previous = previous;
    link.next = undefined;
    link.previous = undefined;
    this.size--;
  }

  *[Symbol.iterator](): IterableIterator<T> {
    for (let link = this.first; link !== undefined; link = link.next) yield link.item;
  }
}
