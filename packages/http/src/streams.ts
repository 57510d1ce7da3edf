import { type ItemStream, type Metadata, RpcError } from "cinnabar/standard";
import type { EndMessage } from "./connect-codes.ts";
import { connectError, errorAnswer, Refusal } from "./errors.ts";
import type { HttpAnswer, ItemsBody } from "./exchange.ts";
import { headersOf } from "./headers.ts";
import { jsonOfValue } from "./json/values.ts";

/** How the items of a stream and its end are written. */
export interface StreamForm {
  readonly headers: HttpAnswer["headers"];
  item(json: string): Uint8Array;
  end(message: EndMessage): Uint8Array;
  /** Bytes without a meaning, sent where a proxy would take silence for death; undefined without such bytes. */
  readonly beat: Uint8Array | undefined;
  /** Whether a failure before the first item has the status of its code. */
  readonly hasStatus: boolean;
}

const utf8 = new TextEncoder();

/** Connect's envelopes: a byte of flags, the length in four bytes, the message. */
export const envelopes: StreamForm & { failed(error: RpcError): HttpAnswer } = {
  headers: [["content-type", "application/connect+json"]],
  item: (json) => envelope(0, json),
  end: (message) => envelope(2, JSON.stringify(message)),
  beat: undefined,
  hasStatus: false,
  failed: (error) => {
    let bytes: Uint8Array | undefined = envelopes.end({ error: connectError(error) });
    const body: ItemsBody = {
      async next() {
        const last = bytes;
        bytes = undefined;
        return last;
      },
      cancel() {},
    };
    return { status: 200, headers: envelopes.headers, body };
  },
};

function envelope(flags: number, json: string): Uint8Array {
  const message = utf8.encode(json);
  const bytes = new Uint8Array(5 + message.byteLength);
  new DataView(bytes.buffer).setUint32(1, message.byteLength);
  bytes[0] = flags;
  bytes.set(message, 5);
  return bytes;
}

/** The id of the last event. A browser that connects again shows that it has seen the end. */
export const endId = "end";

/**
 * Server-sent events: an event for each item, and one that says how the stream ended. It is not called `error`: browsers
 * report a lost connection by an event of that name.
 */
export const serverSentEvents: StreamForm = {
  headers: [
    ["content-type", "text/event-stream"],
    ["cache-control", "no-store"],
    // nginx would collect the events.
    ["x-accel-buffering", "no"],
  ],
  item: (json) => utf8.encode(`data: ${json}\n\n`),
  end: (message) =>
    utf8.encode(
      `id: ${endId}\nevent: ${message.error === undefined ? "end" : "failed"}\ndata: ${JSON.stringify(message)}\n\n`,
    ),
  beat: utf8.encode(":\n\n"),
  hasStatus: true,
};

/** Proxies give up a connection that is silent for a minute. */
const beatMs = 15_000;

/** How long an answer waits for its status: a browser's event stream is open when it has the headers. */
const statusMs = 1000;

/** What a call gives: items, or the one answer of a client stream. */
export type CallItems = Pick<ItemStream<unknown>, "next" | "cancel">;

/** The answer of a client stream, as a stream of one item. */
export class OneAnswer implements CallItems {
  readonly #answer: Promise<unknown>;
  readonly #stop: () => void;
  #isGiven = false;

  /** `stop` ends the call. */
  constructor(answer: Promise<unknown>, stop: () => void) {
    this.#answer = answer;
    this.#stop = stop;
  }

  async next(): Promise<IteratorResult<unknown, undefined>> {
    if (this.#isGiven) return { done: true, value: undefined };
    const value = (await this.#answer) ?? {};
    this.#isGiven = true;
    return { done: false, value };
  }

  cancel(): void {
    this.#stop();
  }
}

/** A call of a stream, while its items become the body of an answer. */
export class StreamCall implements ItemsBody {
  readonly #form: StreamForm;
  readonly #onEnd: () => void;
  readonly #stream: CallItems;
  /** The item that is waited for. */
  #pending: Promise<IteratorResult<unknown, undefined>> | undefined;
  #headers: Metadata | undefined;
  #trailers: Metadata | undefined;
  #hasEnded = false;
  #onHeaders = () => {};

  /** `open` makes the call with the given options. `onEnd` is called once, when the body has ended. */
  constructor(
    form: StreamForm,
    open: (options: {
      onHeaders(headers: Metadata): void;
      onTrailers(trailers: Metadata): void;
    }) => CallItems,
    onEnd: () => void,
  ) {
    this.#form = form;
    this.#onEnd = onEnd;
    this.#stream = open({
      onHeaders: (headers) => {
        this.#headers = headers;
        this.#onHeaders();
      },
      onTrailers: (trailers) => {
        this.#trailers = trailers;
      },
    });
  }

  /**
   * The answer, as soon as there is something to send: the headers of the call, its first item, its end, or after
   * `statusMs` of silence.
   */
  async answer(): Promise<HttpAnswer> {
    const first = this.#item();
    let failure: unknown;
    const known = new Promise<void>((resolve) => {
      this.#onHeaders = resolve;
    });
    const settled = first.then(
      () => {},
      (error) => {
        failure = error;
      },
    );
    await within(statusMs, Promise.race([settled, known]));
    if (failure !== undefined && this.#form.hasStatus) {
      this.#finish();
      if (!(failure instanceof RpcError)) throw failure;
      return errorAnswer(failure, [...headersOf(this.#headers), ...headersOf(this.#trailers, "trailer-")]);
    }
    return { status: 200, headers: [...this.#form.headers, ...headersOf(this.#headers)], body: this };
  }

  async next(): Promise<Uint8Array | undefined> {
    if (this.#hasEnded) return undefined;
    try {
      const { beat } = this.#form;
      const item = this.#item();
      const result = beat === undefined ? await item : await within(beatMs, item);
      if (result === undefined) return beat;
      this.#pending = undefined;
      if (result.done !== true) return this.#form.item(jsonOfValue(result.value));
      return this.#end({});
    } catch (error) {
      const failure = error instanceof RpcError ? error : new RpcError({ code: "internal", message: "" });
      return this.#end({ error: connectError(refusedItem(failure)) });
    }
  }

  cancel(): void {
    this.#stream.cancel();
    this.#finish();
  }

  #item(): Promise<IteratorResult<unknown, undefined>> {
    if (this.#pending === undefined) {
      this.#pending = this.#stream.next();
      // Its reader may have stopped waiting, and the rejection would be unhandled.
      this.#pending.catch(() => {});
    }
    return this.#pending;
  }

  #end(message: EndMessage): Uint8Array {
    this.#finish();
    const metadata: Record<string, string[]> = {};
    for (const [name, value] of headersOf(this.#trailers)) (metadata[name] ??= []).push(value);
    return this.#form.end({ ...message, ...(Object.keys(metadata).length === 0 ? {} : { metadata }) });
  }

  #finish(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#onEnd();
  }
}

/** The error of a call whose client has sent an item that does not fit. The call itself only knows that items failed. */
function refusedItem(error: RpcError): RpcError {
  const { cause } = error;
  if (!(cause instanceof Refusal)) return error;
  return new RpcError({ code: cause.code, message: cause.message, origin: "remote" });
}

/** The value of a promise, or undefined if it takes longer. */
async function within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
