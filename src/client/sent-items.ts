import type { RpcError } from "../base/errors/rpc-error.ts";
import { IteratedOnce } from "../session/streams/item-receiver.ts";
import {
  endedTwice,
  maxWaitingItems,
  notTaken,
  sentAfterEnd,
  streamEnded,
  tooManyWait,
} from "./item-queue.ts";

interface WaitingItem {
  readonly item: unknown;
  readonly resolve: () => void;
  readonly reject: (error: RpcError) => void;
}

type Result = IteratorResult<unknown, undefined>;

interface Reader {
  readonly resolve: (result: Result) => void;
  readonly reject: (error: RpcError) => void;
}

const done: Result = Object.freeze({ done: true, value: undefined });

/**
 * Items that a user sends one by one, handed over to middleware of the client as an iterable. `send` resolves when the
 * reader has taken the item, so middleware sets the pace, and behind it the server.
 *
 *   open    items are handed over; those that nobody has asked for wait
 *   ended   the user sends no more; those that wait are still taken
 *   closed  nothing is taken any more: the stream has ended, or its reader has left
 */
export class SentItems extends IteratedOnce implements AsyncIterableIterator<unknown, undefined> {
  readonly #waiting: WaitingItem[] = [];
  readonly #readers: Reader[] = [];
  /** The error of the stream that the reader has left, where it has one. */
  readonly #whyLeft: () => RpcError | undefined;
  #isEnded = false;
  #whenThrough: (() => void) | undefined;
  #isOver = false;
  /** Why nothing is taken any more: the stream is over, or its reader has left. */
  #closed: RpcError | undefined;
  /** What the reader is still to be told. */
  #untold: RpcError | undefined;

  constructor(whyLeft: () => RpcError | undefined) {
    super();
    this.#whyLeft = whyLeft;
  }

  // ---- the user ---------------------------------------------------------------------------------------------------

  /** @throws Rejects as `ItemWriter.send` says. An item that does not fit its schema ends the stream later. */
  send(item: unknown): Promise<void> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    if (this.#isEnded) return Promise.reject(sentAfterEnd());
    const reader = this.#readers.shift();
    if (reader !== undefined) {
      reader.resolve({ done: false, value: item });
      return Promise.resolve();
    }
    if (this.#waiting.length >= maxWaitingItems) return Promise.reject(tooManyWait());
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
    });
  }

  /** No more items come. Resolves when the reader has taken all before. */
  end(): Promise<void> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    if (this.#isEnded) return Promise.reject(endedTwice());
    this.#isEnded = true;
    this.#endReaders();
    if (this.#waiting.length === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#whenThrough = resolve;
    });
  }

  /** The stream is over: `error` unless it ended well. The reader is told of an error instead of the end. */
  close(error: RpcError | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    // Once all has been taken the reader has been told of a good end.
    const isCut = this.#closed === undefined && !(this.#isEnded && this.#waiting.length === 0);
    this.#takeNoMore(error ?? streamEnded());
    if (error === undefined || !isCut) return this.#endReaders();
    const [first, ...others] = this.#readers.splice(0);
    if (first === undefined) this.#untold = error;
    else first.reject(error);
    for (const { resolve } of others) resolve(done);
  }

  #takeNoMore(why: RpcError): void {
    this.#closed = why;
    for (const { reject } of this.#waiting.splice(0)) reject(why);
    this.#whenThrough?.();
  }

  #endReaders(): void {
    for (const { resolve } of this.#readers.splice(0)) resolve(done);
  }

  // ---- the reader -------------------------------------------------------------------------------------------------

  next(): Promise<Result> {
    const waiting = this.#waiting.shift();
    if (waiting !== undefined) {
      waiting.resolve();
      if (this.#waiting.length === 0) this.#whenThrough?.();
      return Promise.resolve({ done: false, value: waiting.item });
    }
    if (this.#untold !== undefined) {
      const error = this.#untold;
      this.#untold = undefined;
      return Promise.reject(error);
    }
    if (this.#isEnded || this.#closed !== undefined) return Promise.resolve(done);
    return new Promise((resolve, reject) => {
      this.#readers.push({ resolve, reject });
    });
  }

  /** The reader wants no more: the stream has failed, or middleware goes on without the rest. */
  return(): Promise<Result> {
    this.#untold = undefined;
    if (this.#closed === undefined) this.#takeNoMore(this.#whyLeft() ?? notTaken());
    this.#endReaders();
    return Promise.resolve(done);
  }
}
