interface Entry<T> {
  readonly atMs: number;
  /** Orders events at the same time: the first that was added comes first. */
  readonly order: number;
  readonly event: T;
}

/** Events by their time: a binary heap. */
export class EventQueue<T> {
  readonly #heap: Entry<T>[] = [];
  #added = 0;

  get nextMs(): number {
    return this.#heap[0]?.atMs ?? Number.POSITIVE_INFINITY;
  }

  add(atMs: number, event: T): void {
    const entry = { atMs, order: this.#added++, event };
    const heap = this.#heap;
    let at = heap.length;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent] as Entry<T>;
      if (isBefore(above, entry)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = entry;
  }

  take(): T | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first?.event;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1] as Entry<T>, heap[child] as Entry<T>))
        child += 1;
      const below = heap[child] as Entry<T>;
      if (isBefore(last, below)) break;
      heap[at] = below;
      at = child;
    }
    heap[at] = last;
    return first.event;
  }
}

function isBefore<T>(a: Entry<T>, b: Entry<T>): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}
