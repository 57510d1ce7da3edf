import { rejectedWithFrames } from "../../base/errors/caller-frames.ts";
import type { RpcError } from "../../base/errors/rpc-error.ts";
import {
  formatIssues,
  type Schema,
  type Validation,
  type Validator,
  validatorOf,
} from "../../contract/schema.ts";

/** The source of a receiver's items. It is notified of consumed items. */
export interface ItemOrigin {
  /** The consumer has taken an item of `cost` credits and `heapBytes` of memory. */
  onTaken(cost: number, heapBytes: number): void;
  /** The consumer wants no more items. */
  onDiscarded(): void;
}

/** The owner of a receiver. */
export interface ReceiverOwner {
  /** An item does not fit the contract, or a schema threw. Ends the stream and returns its error. */
  onMisfit(issues: string | undefined, cause?: unknown): RpcError;
  /** The consumer wants no more items. */
  onReturn(): void;
  /** An item waits for its consumer. Called at least for the first item of a stream. */
  onArrival?(): void;
}

type NextReader = (
  result: IteratorResult<unknown, undefined> | PromiseLike<IteratorResult<unknown, undefined>>,
) => void;

/** Replaces the array of a queue that has always been empty. Never filled. */
const none: never[] = [];
/** The entries of an item in the queue: its value, its credits, and its memory. */
const entries = 3;
/** An empty queue keeps its array up to this length: an idle stream holds little. */
const keptEntries = 32 * entries;

/** Replaces a value that is being pulled. */
const pulling = Symbol("pulling");
const done: IteratorReturnResult<undefined> = Object.freeze({ done: true, value: undefined });

/**
 * The items of one direction of a stream where they arrive, in order, and their consumer. It checks an item when the
 * consumer takes it.
 *
 *   open       items arrive
 *   ended      no more arrive; those that wait are still taken, then the error if there is one
 *   discarded  the consumer receives no more items
 */
export class ItemReceiver implements ItemReader {
  readonly #validator: Validator;
  readonly #owner: ReceiverOwner;
  readonly #parses: boolean;
  /** The waiting items, `entries` places each, from `#head` to `#tail`. An idle stream has no array. */
  #queue: unknown[] = none;
  #head = 0;
  #tail = 0;
  /** The number of the first item, by which a pulled item finds its place. */
  #first = 0;
  /** The first reader that waits for an item. More readers are rare. */
  #waiter: NextReader | undefined;
  #otherWaiters: NextReader[] | undefined;
  #ended = false;
  /** The consumer receives no more items. */
  discarded = false;
  #error: RpcError | undefined;

  /** The source of the items. A retry replaces it. */
  origin: ItemOrigin | undefined;

  /** `parses`: the consumer receives the schema's result for an item, and not the item as it arrived. */
  constructor(schema: Schema, owner: ReceiverOwner, parses: boolean) {
    this.#parses = parses;
    this.#validator = validatorOf(schema);
    this.#owner = owner;
  }

  /** A reader waits for an item that has not come. */
  get awaited(): boolean {
    return this.#waiter !== undefined;
  }

  // ---- what arrives -----------------------------------------------------------------------------------------------

  push(value: unknown, cost: number, heapBytes: number): void {
    if (this.discarded) return;
    if (this.#waiter !== undefined && this.#head === this.#tail && value !== pulling) {
      this.#first++;
      this.origin?.onTaken(cost, heapBytes);
      return this.#give(value);
    }
    if (this.#queue === none) {
      this.#queue = [];
      this.#owner.onArrival?.();
    }
    const queue = this.#queue;
    const tail = this.#tail;
    queue[tail] = value;
    queue[tail + 1] = cost;
    queue[tail + 2] = heapBytes;
    this.#tail = tail + entries;
  }

  /** Keeps the place of an item that must be pulled. Returns the argument for `fill`. */
  reserve(cost: number): number {
    this.push(pulling, cost, 0);
    return this.#first + (this.#tail - this.#head) / entries - 1;
  }

  fill(place: number, value: unknown, heapBytes: number): void {
    if (this.discarded) return;
    const at = this.#head + (place - this.#first) * entries;
    if (at < this.#head || at >= this.#tail || this.#queue[at] !== pulling) return;
    this.#queue[at] = value;
    this.#queue[at + 2] = heapBytes;
    this.#serve();
  }

  /** No more items come. An error also ends the pulls: the items after the first pull are lost. */
  end(error: RpcError | undefined): void {
    if (error !== undefined) this.#cutPulls();
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    this.#serve();
  }

  /** The session has ended while an item was being pulled. */
  lose(error: RpcError): void {
    if (this.discarded || !this.#cutPulls()) return;
    this.#ended = true;
    this.#error ??= error;
    this.#serve();
  }

  /** Drops the first item that is being pulled, and all items after it. Returns false without such an item. */
  #cutPulls(): boolean {
    for (let at = this.#head; at < this.#tail; at += entries) {
      if (this.#queue[at] !== pulling) continue;
      this.#queue.length = at;
      this.#tail = at;
      return true;
    }
    return false;
  }

  /** The consumer receives `error`, or the end, next. Waiting items are dropped. */
  discard(error: RpcError | undefined): void {
    if (this.discarded) return;
    this.discarded = true;
    this.#queue = none;
    this.#head = 0;
    this.#tail = 0;
    // Replaces an error that waited behind the dropped items.
    this.#error = error;
    this.#ended = true;
    this.#serve();
    this.origin?.onDiscarded();
  }

  // ---- the consumer -----------------------------------------------------------------------------------------------

  next(): Promise<IteratorResult<unknown, undefined>> {
    if (this.#waiter === undefined) {
      if (this.#hasItem) return this.#take();
      if (this.#isThrough) return this.#finish();
    }
    return new Promise((resolve) => {
      if (this.#waiter === undefined) this.#waiter = resolve;
      else {
        this.#otherWaiters ??= [];
        this.#otherWaiters.push(resolve);
      }
    });
  }

  return(): Promise<IteratorResult<unknown, undefined>> {
    this.#owner.onReturn();
    this.discard(undefined);
    return Promise.resolve(done);
  }

  get #hasItem(): boolean {
    return this.#head < this.#tail && this.#queue[this.#head] !== pulling;
  }

  get #isThrough(): boolean {
    return this.#ended && this.#head === this.#tail;
  }

  #serve(): void {
    while (this.#waiter !== undefined) {
      if (this.#hasItem) this.#give(this.#shift());
      else if (this.#isThrough) this.#nextWaiter()(this.#finish());
      else return;
    }
  }

  /** Removes the reader that has waited longest. */
  #nextWaiter(): NextReader {
    const waiter = this.#waiter as NextReader;
    this.#waiter = this.#otherWaiters?.shift();
    return waiter;
  }

  #give(value: unknown): void {
    const waiter = this.#nextWaiter();
    waiter(this.#check(value));
  }

  #take(): Promise<IteratorResult<unknown, undefined>> {
    const checked = this.#check(this.#shift());
    return checked instanceof Promise ? checked : Promise.resolve(checked);
  }

  #shift(): unknown {
    const queue = this.#queue;
    const head = this.#head;
    const value = queue[head];
    const cost = queue[head + 1] as number;
    const heapBytes = queue[head + 2] as number;
    queue[head] = undefined;
    this.#head = head + entries;
    this.#first++;
    if (this.#head === this.#tail) {
      this.#head = 0;
      this.#tail = 0;
      if (queue.length > keptEntries) this.#queue = none;
    } else if (this.#head >= compactAt) {
      this.#queue = queue.slice(this.#head, this.#tail);
      this.#tail -= this.#head;
      this.#head = 0;
    }
    this.origin?.onTaken(cost, heapBytes);
    return value;
  }

  #check(value: unknown): IteratorResult<unknown, undefined> | Promise<IteratorResult<unknown, undefined>> {
    try {
      const verdict = this.#validator.validate(value);
      if (verdict instanceof Promise)
        return verdict.then(
          (late) => this.#judge(late, value),
          (cause: unknown) => this.#fail(undefined, cause),
        );
      return this.#judge(verdict, value);
    } catch (cause) {
      return this.#fail(undefined, cause);
    }
  }

  #judge(
    verdict: Validation<unknown>,
    arrived: unknown,
  ): IteratorResult<unknown, undefined> | Promise<IteratorResult<unknown, undefined>> {
    if (verdict.issues === undefined) return { done: false, value: this.#parses ? verdict.value : arrived };
    return this.#fail(formatIssues("item", verdict.issues));
  }

  #fail(issues: string | undefined, cause?: unknown): Promise<never> {
    const error = this.#owner.onMisfit(issues, cause);
    this.discard(undefined);
    return Promise.reject(error);
  }

  /** The error is reported once, as by a generator. */
  #finish(): Promise<IteratorResult<unknown, undefined>> {
    const error = this.#error;
    this.#error = undefined;
    return error === undefined ? Promise.resolve(done) : rejectedWithFrames(error);
  }
}

/** The number of taken places at the front that are kept before the rest moves. */
const compactAt = 1024 * entries;

/** The source of items for a consumer: a receiver, or a wrapper of one. */
export interface ItemReader {
  next(): Promise<IteratorResult<unknown, undefined>>;
  /** The consumer wants no more items. */
  return(): Promise<IteratorResult<unknown, undefined>>;
}

/** The items of a stream for its consumer. A second loop would receive no items, or share them with the first. */
export class Items<Reader extends ItemReader = ItemReader> implements AsyncIterableIterator<unknown> {
  protected readonly reader: Reader;
  #isIterated = false;

  constructor(reader: Reader) {
    this.reader = reader;
  }

  /** @throws TypeError the second time. To continue after a loop, call `next()`. */
  [Symbol.asyncIterator](): this {
    if (this.#isIterated)
      throw new TypeError("a stream can be iterated once, and this one has been: call its next() to read on");
    this.#isIterated = true;
    return this;
  }

  next(): Promise<IteratorResult<unknown, undefined>> {
    return this.reader.next();
  }

  return(): Promise<IteratorResult<unknown, undefined>> {
    return this.reader.return();
  }
}
