/** A place in a chain. */
export interface Link<T> {
  readonly item: T;
  next: Link<T> | undefined;
  previous: Link<T> | undefined;
}

/**
 * A doubly linked list: adding, taking off either end and cutting out of the middle cost O(1), however much has gone
 * through it.
 */
export class Chain<T> {
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

  /** The link must be of this chain, and is in none afterwards. */
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
