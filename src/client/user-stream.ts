import type { ClientStreamWriter, DuplexStreamWriter, ItemStream } from "../contract/item-stream.ts";
import { type ItemReader, Items } from "../session/streams/item-receiver.ts";

/** A stream for its user: one call, or the result of the client's middleware. */
export interface UserStream extends ItemReader {
  cancel(reason?: unknown): void;
  /**
   * The answer of a client stream, as a promise for this caller alone. An error without a handler is an unhandled
   * rejection.
   */
  answered(): Promise<unknown>;
}

/** Takes the items that a user sends one by one. */
interface Inputs {
  send(item: unknown): Promise<void>;
  end(): Promise<void>;
}

/** The items of the server for their consumer. */
export class Outputs extends Items<UserStream> implements ItemStream<unknown> {
  cancel(reason?: unknown): void {
    this.reader.cancel(reason);
  }

  async toArray(): Promise<unknown[]> {
    const items: unknown[] = [];
    for await (const item of this) items.push(item);
    return items;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.reader.cancel();
  }
}

/** A duplex stream whose items are sent one by one. */
export class DuplexWriter extends Outputs implements DuplexStreamWriter<unknown, unknown> {
  readonly #inputs: Inputs;

  constructor(stream: UserStream, inputs: Inputs) {
    super(stream);
    this.#inputs = inputs;
  }

  send(item: unknown): Promise<void> {
    return this.#inputs.send(item);
  }

  end(): Promise<void> {
    return this.#inputs.end();
  }
}

/** A client stream whose items are sent one by one. */
export class AnswerWriter implements ClientStreamWriter<unknown, unknown> {
  readonly #stream: UserStream;
  readonly #inputs: Inputs;

  constructor(stream: UserStream, inputs: Inputs) {
    this.#stream = stream;
    this.#inputs = inputs;
  }

  send(item: unknown): Promise<void> {
    return this.#inputs.send(item);
  }

  end(): Promise<unknown> {
    // An error that prevents the end is the error of the answer. If the answer has come already, the error is ignored.
    this.#inputs.end().catch(() => {});
    return this.#stream.answered();
  }

  cancel(reason?: unknown): void {
    this.#stream.cancel(reason);
  }
}
