/**
 * The source of a stream's items: an async generator, an array, a web or Node `Readable`, or any other iterable.
 */
export type ItemSource<T> = AsyncIterable<T> | Iterable<T>;

/**
 * The items that the server sends. Iterate it once: `for await (const item of stream)`. Leaving the loop with `break`,
 * `return` or an error cancels the stream. An error of the server is thrown after the items before it.
 */
export interface ItemStream<T> extends AsyncIterableIterator<T> {
  /** The next item. Rejects with an `RpcError`, once. Several calls may wait at the same time. */
  next(): Promise<IteratorResult<T, undefined>>;
  /** As `cancel`. */
  return(): Promise<IteratorResult<T, undefined>>;
  /**
   * Ends the stream now. Unread items are dropped, and later reads end as at the end of the stream. At the server
   * `call.signal` fires. Safe to call at any time.
   */
  cancel(reason?: unknown): void;
  /**
   * Reads the stream to its end. Resolves to its items, or to those that are unread. All of them are held at once, so
   * iterate where their number has no limit. Rejects with the stream's error, and the items before it are lost.
   */
  toArray(): Promise<T[]>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Sends items one by one. */
export interface ItemWriter<T> {
  /**
   * Sends an item. Resolves when it has been handed over to be sent, so `await` respects the server's pace. Items leave
   * in the order of the calls; at most 1024 may wait.
   *
   * @throws Rejects with RpcError `invalid_argument` when the item does not fit its schema, `resource_exhausted` when
   * too many wait, `failed_precondition` after `end` or when the server has ended the stream; with the stream's error
   * when it has failed.
   */
  send(item: T): Promise<void>;
  /** Cancels the stream in both directions. */
  cancel(reason?: unknown): void;
}

/** A client stream that sends its items one by one. */
export interface ClientStreamWriter<T, Answer> extends ItemWriter<T> {
  /** Ends the items. Resolves to the answer of the server. Call it also to receive an early answer. */
  end(): Promise<Answer>;
}

/** A duplex stream that sends its items one by one. */
export interface DuplexStreamWriter<T, Out> extends ItemStream<Out>, ItemWriter<T> {
  /** Ends the items of this side. The server's items continue. Resolves when the end has been handed over. */
  end(): Promise<void>;
}
