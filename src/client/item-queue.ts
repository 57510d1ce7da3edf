import { RpcError } from "../base/errors/rpc-error.ts";
import { formatIssues, type Schema, type Validator, validatorOf } from "../contract/schema.ts";
import type { ItemReader } from "../session/streams/item-receiver.ts";
import type { InputSource, ItemProducer, ItemSender } from "../session/streams/item-sender.ts";
import { type StreamCall, unsendable } from "./stream-call.ts";

/** The most items of one writer that may wait. */
const maxWaitingItems = 1024;

interface WaitingItem {
  readonly item: unknown;
  /** An asynchronous schema has accepted the item. */
  checked: boolean;
  readonly resolve: () => void;
  readonly reject: (error: RpcError) => void;
}

/**
 * The items that a user sends one by one, in order. A subclass takes them: for the sender of a stream, or for middleware.
 *
 *   open    items are taken as fast as the taker is ready; the others wait
 *   ended   the user sends no more; those that wait are still taken
 *   closed  no more items are taken
 */
export abstract class ItemQueue {
  /** The schema of an item that the user sends. Undefined when the item is checked elsewhere. */
  readonly #validator: Validator | undefined;
  readonly #waiting: WaitingItem[] = [];
  #isEnded = false;
  /** The reason why no more items are taken. */
  #closed: RpcError | undefined;
  #whenEnded: (() => void) | undefined;

  constructor(schema: Schema | undefined) {
    this.#validator = schema && validatorOf(schema);
  }

  /** Whether an item would be taken now. */
  protected abstract get isReady(): boolean;
  /** Takes an item. False: not now. Throws the error of an item that cannot be sent. */
  protected abstract take(item: unknown): boolean;
  /** Items wait to be taken. */
  protected abstract onWait(): void;
  /** All items have been taken, and no more come. May be called again. */
  protected abstract onThrough(): void;

  /** Whether all items have been taken, and no more come. */
  protected get isThrough(): boolean {
    return this.#isEnded && this.#waiting.length === 0;
  }

  protected get isClosed(): boolean {
    return this.#closed !== undefined;
  }

  /** @throws Rejects like `ItemWriter.send`. */
  send(item: unknown): Promise<void> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    if (this.#isEnded) return Promise.reject(precondition("send after end: the stream takes no more items"));
    if (this.#validator !== undefined) {
      try {
        const verdict = this.#validator.validate(item);
        if (verdict instanceof Promise)
          return this.#wait(item, false, (entry) => {
            verdict.then(
              ({ issues }) => {
                entry.checked = true;
                if (issues !== undefined) this.#refuse(entry, misfit(formatIssues("item", issues)));
                else this.pass();
              },
              (cause: unknown) => this.#refuse(entry, schemaThrew(cause)),
            );
          });
        if (verdict.issues !== undefined) return Promise.reject(misfit(formatIssues("item", verdict.issues)));
      } catch (cause) {
        return Promise.reject(schemaThrew(cause));
      }
    }
    if (this.#waiting.length > 0 || !this.isReady) return this.#wait(item, true);
    try {
      return this.take(item) ? taken : this.#wait(item, true);
    } catch (error) {
      return Promise.reject(unsendable(error));
    }
  }

  /** Ends the items. Resolves when all earlier items have been taken. */
  end(): Promise<void> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    if (this.#isEnded) return Promise.reject(precondition("end was called before"));
    this.#isEnded = true;
    if (this.#waiting.length > 0)
      return new Promise((resolve) => {
        this.#whenEnded = resolve;
      });
    this.onThrough();
    return taken;
  }

  /** Hands over waiting items, as far as they may be taken now. */
  protected pass(): void {
    let count = 0;
    while (this.#waiting[count]?.checked && this.isReady) {
      const { item, resolve, reject } = this.#waiting[count] as WaitingItem;
      try {
        if (!this.take(item)) break;
        resolve();
      } catch (error) {
        reject(unsendable(error));
      }
      count++;
    }
    this.#waiting.splice(0, count);
    if (this.#waiting[0]?.checked) this.onWait();
    if (!this.isThrough) return;
    this.onThrough();
    this.#whenEnded?.();
  }

  /** Takes the first waiting item. Undefined when no item waits. */
  protected shift(): { readonly item: unknown } | undefined {
    const first = this.#waiting.shift();
    if (first === undefined) return undefined;
    first.resolve();
    if (this.isThrough) this.#whenEnded?.();
    return first;
  }

  /** Stops taking items: waiting and later items are refused with `why`. */
  protected takeNoMore(why: RpcError): void {
    this.#closed = why;
    for (const { reject } of this.#waiting.splice(0)) reject(why);
    this.#whenEnded?.();
  }

  #wait(item: unknown, checked: boolean, then: (entry: WaitingItem) => void = () => {}): Promise<void> {
    if (this.#waiting.length >= maxWaitingItems) return Promise.reject(tooManyWait());
    return new Promise((resolve, reject) => {
      const entry: WaitingItem = { item, checked, resolve, reject };
      this.#waiting.push(entry);
      then(entry);
      if (checked && this.#waiting.length === 1) this.onWait();
    });
  }

  #refuse(entry: WaitingItem, error: RpcError): void {
    const index = this.#waiting.indexOf(entry);
    if (index < 0) return;
    this.#waiting.splice(index, 1);
    entry.reject(error);
    this.pass();
  }
}

/** The inputs of a stream for its sender. They are checked as they come. */
export class SentInputs extends ItemQueue implements InputSource, ItemProducer {
  readonly #stream: StreamCall;
  #sender: ItemSender | undefined;

  constructor(stream: StreamCall) {
    super(stream.method.contract.items);
    this.#stream = stream;
  }

  attach(sender: ItemSender): void {
    this.#sender = sender;
    this.pass();
  }

  detach(): void {
    this.#sender = undefined;
  }

  close(error: RpcError | undefined): void {
    this.#sender = undefined;
    this.takeNoMore(error ?? streamEnded());
  }

  onMaySend(): void {
    this.pass();
  }

  protected override get isReady(): boolean {
    return this.#sender?.ready === true;
  }

  protected override take(item: unknown): boolean {
    return this.#sender?.send(item) === true;
  }

  protected override onWait(): void {
    if (this.#sender?.stopped === false) this.#sender.wait(this);
  }

  protected override onThrough(): void {
    this.#stream.endInputs();
  }
}

type Result = IteratorResult<unknown, undefined>;

interface Waiter {
  readonly resolve: (result: Result) => void;
  readonly reject: (error: RpcError) => void;
}

const done: Result = Object.freeze({ done: true, value: undefined });

/**
 * The inputs of a stream that middleware of the client reads. `send` resolves when the reader has taken the item, so
 * middleware sets the pace, and behind it the server. The inner stream checks the items.
 */
export class ReadInputs extends ItemQueue implements ItemReader {
  readonly #waiters: Waiter[] = [];
  /** The error of the stream that the reader has left, if it has one. */
  whyLeft: () => RpcError | undefined = () => undefined;
  #isOver = false;
  /** The error that the reader has not received yet. */
  #unread: RpcError | undefined;

  constructor() {
    super(undefined);
  }

  next(): Promise<Result> {
    const first = this.shift();
    if (first !== undefined) return Promise.resolve({ done: false, value: first.item });
    if (this.#unread !== undefined) {
      const error = this.#unread;
      this.#unread = undefined;
      return Promise.reject(error);
    }
    if (this.isThrough || this.isClosed) return Promise.resolve(done);
    return new Promise((resolve, reject) => {
      this.#waiters.push({ resolve, reject });
    });
  }

  /** The reader wants no more items: the stream has failed, or middleware continues without the rest. */
  return(): Promise<Result> {
    this.#unread = undefined;
    if (!this.isClosed) this.takeNoMore(this.whyLeft() ?? precondition("the stream takes no more items"));
    this.onThrough();
    return Promise.resolve(done);
  }

  /** The stream has ended, with `error` if it failed. The reader receives an error instead of the end. */
  close(error: RpcError | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    // A reader that has taken every item has seen a regular end.
    const isCut = !this.isClosed && !this.isThrough;
    this.takeNoMore(error ?? streamEnded());
    if (error !== undefined && isCut) {
      const first = this.#waiters.shift();
      if (first === undefined) this.#unread = error;
      else first.reject(error);
    }
    this.onThrough();
  }

  protected override get isReady(): boolean {
    return this.#waiters.length > 0;
  }

  protected override take(item: unknown): boolean {
    this.#waiters.shift()?.resolve({ done: false, value: item });
    return true;
  }

  /** The next `next` takes them. */
  protected override onWait(): void {}

  protected override onThrough(): void {
    for (const { resolve } of this.#waiters.splice(0)) resolve(done);
  }
}

const taken: Promise<void> = Promise.resolve();

const streamEnded = (): RpcError => precondition("the server has ended the stream");
const tooManyWait = (): RpcError =>
  new RpcError({
    code: "resource_exhausted",
    message: `${maxWaitingItems} items of the stream wait to be sent: await send, so that the server sets the pace`,
  });

function precondition(message: string): RpcError {
  return new RpcError({ code: "failed_precondition", message });
}

function misfit(message: string): RpcError {
  return new RpcError({ code: "invalid_argument", message });
}

function schemaThrew(cause: unknown): RpcError {
  return new RpcError({ code: "internal", message: "a schema of the contract threw", cause });
}
