import { contextHere } from "../../base/time/detached-context.ts";
import { itemsBoundTo } from "../../call/bound-items.ts";
import type { ItemSource } from "../../contract/item-stream.ts";
import {
  formatIssues,
  type Schema,
  type Validation,
  type Validator,
  validatorOf,
} from "../../contract/schema.ts";
import type { ItemProducer, ItemSender } from "./item-sender.ts";

/** The form in which a pump sends an item: a server sends the schema's result, a client sends the original item. */
export type PumpMode = "parsed" | "original";

type SourceIterator = Iterator<unknown> | AsyncIterator<unknown>;

const nothing = Symbol("nothing");

/**
 * Takes items from an iterable, one after the other, and sends them as fast as the receiver takes them. It asks for an
 * item only when that item could be sent, so only one item waits here. The owner of the items extends the class, which
 * saves an object for each open stream.
 */
export abstract class Pump implements ItemProducer {
  readonly #iterator: SourceIterator;
  readonly #validator: Validator;
  readonly #mode: PumpMode;
  #sender: ItemSender | undefined;
  /** The source has been asked for an item, or the item is being checked. */
  #asking = false;
  /** An item that came while there was no sender, or no room. */
  #held: unknown = nothing;
  #ended = false;
  #stopped = false;

  /**
   * The code of `source` runs in the async context of the constructor's caller, or in the context that it is bound to.
   *
   * @throws TypeError when `source` cannot be iterated, and any error that it throws.
   */
  constructor(source: ItemSource<unknown>, schema: Schema, mode: PumpMode) {
    this.#iterator = iteratorOf(itemsBoundTo(contextHere(), source));
    this.#validator = validatorOf(schema);
    this.#mode = mode;
  }

  /** All items have been sent. */
  protected abstract onSourceEnded(): void;
  /** The source threw, or a schema. */
  protected abstract onSourceFailed(error: unknown): void;
  /** An item cannot be encoded, or there is no room for it. Default: the source has failed. */
  protected onItemUnsendable(error: unknown): void {
    this.onSourceFailed(error);
  }
  /** An item does not fit the contract. */
  protected abstract onItemMisfit(issues: string): void;

  /** Uses this sender from now on. */
  attach(sender: ItemSender): void {
    this.#sender = sender;
    this.onMaySend();
  }

  /** Removes the sender until the next `attach`. */
  detach(): void {
    this.#sender = undefined;
  }

  onMaySend(): void {
    this.#step();
  }

  /**
   * Stops asking for items: runs the `finally` of a generator. The promise resolves when the source has ended. A source
   * that waits for something ends when it has received that.
   */
  async stop(): Promise<void> {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#held = nothing;
    if (this.#ended) return;
    try {
      await this.#iterator.return?.();
    } catch {
      // The stream has ended with another error.
    }
  }

  #step(): void {
    while (!this.#stopped && !this.#asking && !this.#ended) {
      const sender = this.#sender;
      if (sender === undefined || sender.stopped) return;
      if (!sender.ready) return sender.wait(this);
      if (this.#held !== nothing) {
        const held = this.#held;
        this.#held = nothing;
        this.#send(held);
        continue;
      }
      try {
        const result = this.#iterator.next();
        if (isResult(result)) this.#onResult(result);
        else {
          this.#asking = true;
          Promise.resolve(result).then(this.#onLateResult, this.#onLateFailure);
        }
      } catch (error) {
        return this.#onFailed(error);
      }
    }
  }

  readonly #onLateResult = (result: IteratorResult<unknown>): void => {
    this.#asking = false;
    try {
      this.#onResult(result);
    } catch (error) {
      return this.#onFailed(error);
    }
    this.#step();
  };

  readonly #onLateFailure = (error: unknown): void => {
    this.#asking = false;
    this.#onFailed(error);
  };

  /** Throws the errors of the schema, and an error for a source with an invalid result. */
  #onResult(result: IteratorResult<unknown>): void {
    if (this.#stopped) return;
    if (result.done) {
      this.#ended = true;
      return this.onSourceEnded();
    }
    const { value } = result;
    const verdict = this.#validator.validate(value);
    if (!(verdict instanceof Promise)) return this.#onVerdict(value, verdict);
    this.#asking = true;
    verdict
      .then((late) => {
        this.#asking = false;
        this.#onVerdict(value, late);
        this.#step();
      })
      .catch(this.#onLateFailure);
  }

  #onVerdict(value: unknown, verdict: Validation<unknown>): void {
    if (this.#stopped) return;
    if (verdict.issues === undefined) this.#send(this.#mode === "parsed" ? verdict.value : value);
    else this.onItemMisfit(formatIssues("item", verdict.issues));
  }

  #send(value: unknown): void {
    const sender = this.#sender;
    if (sender === undefined || sender.stopped) {
      this.#held = value;
      return;
    }
    try {
      if (!sender.send(value)) this.#held = value;
    } catch (error) {
      if (!this.#stopped && !this.#ended) this.onItemUnsendable(error);
    }
  }

  #onFailed(error: unknown): void {
    if (this.#stopped || this.#ended) return;
    this.onSourceFailed(error);
  }
}

function isResult(
  result: IteratorResult<unknown> | Promise<IteratorResult<unknown>>,
): result is IteratorResult<unknown> {
  return typeof (result as { then?: unknown }).then !== "function";
}

function iteratorOf(source: unknown): SourceIterator {
  const iterable = source as
    | { [Symbol.asyncIterator]?: unknown; [Symbol.iterator]?: unknown }
    | null
    | undefined;
  if (typeof iterable?.[Symbol.asyncIterator] === "function")
    return (source as AsyncIterable<unknown>)[Symbol.asyncIterator]();
  if (typeof iterable === "object" && typeof iterable?.[Symbol.iterator] === "function")
    return (source as Iterable<unknown>)[Symbol.iterator]();
  throw new TypeError("the items of a stream must be an AsyncIterable, an Iterable or a ReadableStream");
}
