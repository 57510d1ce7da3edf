import { RpcError } from "../base/errors/rpc-error.ts";
import { formatIssues, type Schema, validate } from "../contract/schema.ts";
import type { InputSource, ItemProducer, ItemSender } from "../session/streams/item-sender.ts";
import { type StreamCall, unsendable } from "./stream-call.ts";

/** Items of one writer that may wait to be sent. */
export const maxWaitingItems = 1024;

interface WaitingItem {
  readonly item: unknown;
  /** An asynchronous schema has accepted it. */
  checked: boolean;
  readonly resolve: () => void;
  readonly reject: (error: RpcError) => void;
}

/** The inputs of a stream that its user sends one by one. */
export class ItemQueue implements InputSource, ItemProducer {
  readonly #schema: Schema;
  readonly #waiting: WaitingItem[] = [];
  #stream: StreamCall | undefined;
  #sender: ItemSender | undefined;
  #ended = false;
  #error: RpcError | undefined;
  #whenEnded: (() => void) | undefined;

  constructor(schema: Schema) {
    this.#schema = schema;
  }

  /** The stream that it belongs to. */
  belongTo(stream: StreamCall): void {
    this.#stream = stream;
  }

  send(item: unknown): Promise<void> {
    if (this.#error !== undefined) return Promise.reject(this.#error);
    if (this.#ended) return Promise.reject(sentAfterEnd());
    let checked = true;
    try {
      const verdict = validate(this.#schema, item);
      if (verdict instanceof Promise) {
        checked = false;
        return this.#wait(item, checked, (entry) => {
          verdict.then(
            ({ issues }) => {
              entry.checked = true;
              if (issues !== undefined) this.#refuse(entry, misfit(formatIssues("item", issues)));
              else this.onMaySend();
            },
            (cause: unknown) => this.#refuse(entry, schemaThrew(cause)),
          );
        });
      }
      if (verdict.issues !== undefined) return Promise.reject(misfit(formatIssues("item", verdict.issues)));
    } catch (cause) {
      return Promise.reject(schemaThrew(cause));
    }
    if (this.#waiting.length > 0 || this.#sender?.ready !== true) return this.#wait(item, checked);
    try {
      this.#sender.send(item);
      return sent;
    } catch (error) {
      return Promise.reject(unsendable(error));
    }
  }

  /** No more items come. Resolves when that has been handed over behind them. */
  end(): Promise<void> {
    if (this.#error !== undefined) return Promise.reject(this.#error);
    if (this.#ended) return Promise.reject(endedTwice());
    this.#ended = true;
    if (this.#waiting.length === 0) {
      this.#stream?.endInputs();
      return sent;
    }
    return new Promise((resolve) => {
      this.#whenEnded = resolve;
    });
  }

  attach(sender: ItemSender): void {
    this.#sender = sender;
    this.onMaySend();
  }

  detach(): void {
    this.#sender = undefined;
  }

  close(error: RpcError | undefined): void {
    this.#error = error ?? streamEnded();
    this.#sender = undefined;
    for (const { reject } of this.#waiting.splice(0)) reject(this.#error);
    this.#whenEnded?.();
  }

  onMaySend(): void {
    const sender = this.#sender;
    if (sender === undefined || sender.stopped) return;
    let taken = 0;
    while (this.#waiting[taken]?.checked && sender.ready) {
      const { item, resolve, reject } = this.#waiting[taken++] as WaitingItem;
      try {
        sender.send(item);
        resolve();
      } catch (error) {
        reject(unsendable(error));
      }
    }
    this.#waiting.splice(0, taken);
    if (this.#waiting[0]?.checked) sender.wait(this);
    this.#endIfThrough();
  }

  #endIfThrough(): void {
    if (!this.#ended || this.#waiting.length > 0) return;
    this.#stream?.endInputs();
    this.#whenEnded?.();
  }

  #wait(item: unknown, checked: boolean, then: (entry: WaitingItem) => void = () => {}): Promise<void> {
    if (this.#waiting.length >= maxWaitingItems) return Promise.reject(tooManyWait());
    return new Promise((resolve, reject) => {
      const entry: WaitingItem = { item, checked, resolve, reject };
      this.#waiting.push(entry);
      then(entry);
      if (checked && this.#waiting.length === 1) this.#sender?.wait(this);
    });
  }

  #refuse(entry: WaitingItem, error: RpcError): void {
    const index = this.#waiting.indexOf(entry);
    if (index < 0) return;
    this.#waiting.splice(index, 1);
    entry.reject(error);
    this.onMaySend();
  }
}

const sent: Promise<void> = Promise.resolve();

/** Why a writer takes no item, or no end. */
export const sentAfterEnd = (): RpcError => precondition("send after end: the stream takes no more items");
export const endedTwice = (): RpcError => precondition("end was called before");
export const streamEnded = (): RpcError => precondition("the server has ended the stream");
export const notTaken = (): RpcError => precondition("the stream takes no more items");
export const tooManyWait = (): RpcError =>
  new RpcError({
    code: "resource_exhausted",
    message: `${maxWaitingItems} items of the stream wait to be sent: await send, so that the server sets the pace`,
    origin: "local",
  });

function precondition(message: string): RpcError {
  return new RpcError({ code: "failed_precondition", message, origin: "local" });
}

function misfit(message: string): RpcError {
  return new RpcError({ code: "invalid_argument", message, origin: "local" });
}

function schemaThrew(cause: unknown): RpcError {
  return new RpcError({
    code: "internal",
    message: "a schema of the contract threw",
    origin: "local",
    cause,
  });
}
