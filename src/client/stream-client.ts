import { throwWithFrames } from "../base/errors/caller-frames.ts";
import type { RpcError } from "../base/errors/rpc-error.ts";
import type { Middleware } from "../call/middleware.ts";
import type { CallResult } from "../contract/infer.ts";
import type {
  ClientStreamWriter,
  DuplexStreamWriter,
  ItemSource,
  ItemStream,
  ItemWriter,
} from "../contract/item-stream.ts";
import type { AnyMethod } from "../contract/method.ts";
import type { AnyService } from "../contract/service.ts";
import { IteratedOnce } from "../session/streams/item-receiver.ts";
import type { InputSource } from "../session/streams/item-sender.ts";
import { Pump } from "../session/streams/pump.ts";
import type { ItemDirections } from "../transfer/control/control-method.ts";
import { assertStreamOptions, type StreamCallOptions } from "./call-options.ts";
import { resultOf } from "./call-result.ts";
import type { ClientMethod } from "./client-method.ts";
import { ItemQueue } from "./item-queue.ts";
import { ClientMiddlewareCall, type MakeCall } from "./middleware-call.ts";
import { SentItems } from "./sent-items.ts";
import { StreamCall } from "./stream-call.ts";
import { type StreamTerms, streamTerms } from "./stream-terms.ts";
import { AnswerThrough, DuplexThrough, ItemsThrough } from "./stream-through.ts";

type StreamKind = "serverStream" | "clientStream" | "duplexStream";

const directionsOf: Readonly<Record<StreamKind, ItemDirections>> = {
  serverStream: { inputs: false, outputs: true },
  clientStream: { inputs: true, outputs: false },
  duplexStream: { inputs: true, outputs: true },
};

/** What a client has for a method that is a stream. */
export function streamFunction(
  method: ClientMethod,
  kind: StreamKind,
  service: AnyService,
  middleware: readonly Middleware[],
): unknown {
  const opener = new StreamOpener(method, directionsOf[kind], service, middleware);
  if (kind === "serverStream")
    return (input?: unknown, options?: StreamCallOptions): ItemStream<unknown> =>
      opener.outputs(undefined, input, options);
  if (kind === "duplexStream")
    return Object.freeze(
      Object.assign(
        (source: ItemSource<unknown>, input?: unknown, options?: StreamCallOptions): ItemStream<unknown> =>
          opener.outputs(source, input, options),
        {
          open: (input?: unknown, options?: StreamCallOptions): DuplexStreamWriter<unknown, unknown> =>
            opener.duplex(input, options),
        },
      ),
    );
  const call = (
    source: ItemSource<unknown>,
    input?: unknown,
    options?: StreamCallOptions,
  ): Promise<unknown> => opener.answer(source, input, options);
  return Object.freeze(
    Object.assign(call, {
      result: (
        source: ItemSource<unknown>,
        input?: unknown,
        options?: StreamCallOptions,
      ): Promise<CallResult<AnyMethod>> => resultOf(call(source, input, options)),
      open: (input?: unknown, options?: StreamCallOptions): ClientStreamWriter<unknown, unknown> =>
        opener.writer(input, options),
    }),
  );
}

/** Opens the streams of one method of a client, through middleware where there is some. */
class StreamOpener {
  readonly #method: ClientMethod;
  readonly #directions: ItemDirections;
  /** Of streams without options. */
  readonly #terms: StreamTerms;
  readonly #service: AnyService;
  readonly #middleware: readonly Middleware[];

  constructor(
    method: ClientMethod,
    directions: ItemDirections,
    service: AnyService,
    middleware: readonly Middleware[],
  ) {
    this.#method = method;
    this.#directions = directions;
    this.#terms = streamTerms(method, directions);
    this.#service = service;
    this.#middleware = middleware;
  }

  outputs(
    source: ItemSource<unknown> | undefined,
    input: unknown,
    options: StreamCallOptions | undefined,
  ): ItemStream<unknown> {
    const chain = this.#chain(options);
    if (chain === undefined) return this.#outputs(source, input, options);
    return new ItemsThrough(...this.#outputsThrough(chain, source, input, options));
  }

  duplex(input: unknown, options: StreamCallOptions | undefined): DuplexStreamWriter<unknown, unknown> {
    const chain = this.#chain(options);
    if (chain === undefined) return new DuplexWriter(...this.#written(input, options));
    const sent = new SentItems(() => call.streamFailure);
    const [call, items] = this.#outputsThrough(chain, sent, input, options);
    return new DuplexThrough(call, items, sent);
  }

  answer(
    source: ItemSource<unknown>,
    input: unknown,
    options: StreamCallOptions | undefined,
  ): Promise<unknown> {
    const chain = this.#chain(options);
    if (chain === undefined) return answerOf(this.#pumped(source, input, options));
    return this.#answerThrough(chain, source, input, options)[1];
  }

  writer(input: unknown, options: StreamCallOptions | undefined): ClientStreamWriter<unknown, unknown> {
    const chain = this.#chain(options);
    if (chain === undefined) return new AnswerWriter(...this.#written(input, options));
    const sent = new SentItems(() => call.streamFailure);
    const [call, answer] = this.#answerThrough(chain, sent, input, options);
    return new AnswerThrough(call, answer, sent);
  }

  /** The middleware of a stream that says this; undefined when there is none. */
  #chain(options: StreamCallOptions | undefined): readonly Middleware[] | undefined {
    if (options !== undefined) assertStreamOptions(options);
    const own = options?.middleware;
    if (own !== undefined) return [...this.#middleware, ...own];
    return this.#middleware.length === 0 ? undefined : this.#middleware;
  }

  #outputs(
    source: ItemSource<unknown> | undefined,
    input: unknown,
    options: StreamCallOptions | undefined,
  ): ItemStream<unknown> {
    return new Outputs(
      source === undefined ? this.#begun(input, options) : this.#pumped(source, input, options),
    );
  }

  #outputsThrough(
    chain: readonly Middleware[],
    source: ItemSource<unknown> | undefined,
    input: unknown,
    options: StreamCallOptions | undefined,
  ): [ClientMiddlewareCall, Promise<unknown>] {
    const hasInputs = source !== undefined;
    return this.#through(
      chain,
      hasInputs ? source : input,
      hasInputs ? input : undefined,
      options,
      (given, inner) =>
        hasInputs ? this.#pumped(given as ItemSource<unknown>, input, inner) : this.#begun(given, inner),
      (stream) => new Outputs(stream),
    );
  }

  #answerThrough(
    chain: readonly Middleware[],
    source: ItemSource<unknown>,
    input: unknown,
    options: StreamCallOptions | undefined,
  ): [ClientMiddlewareCall, Promise<unknown>] {
    return this.#through(
      chain,
      source,
      input,
      options,
      (given, inner) => this.#pumped(given as ItemSource<unknown>, input, inner),
      answerOf,
    );
  }

  #through(
    chain: readonly Middleware[],
    given: unknown,
    opening: unknown,
    options: StreamCallOptions | undefined,
    begin: (given: unknown, options: StreamCallOptions) => StreamCall,
    outcomeOf: (stream: StreamCall) => unknown,
  ): [ClientMiddlewareCall, Promise<unknown>] {
    const make: MakeCall = async (input, inner) => {
      const stream = begin(input, inner);
      call.keep(stream);
      return outcomeOf(stream);
    };
    const call = new ClientMiddlewareCall(this.#service, this.#method, given, options, make, opening);
    return [call, call.run(chain)];
  }

  #open(input: unknown, options: StreamCallOptions | undefined): StreamCall {
    const terms = options === undefined ? this.#terms : streamTerms(this.#method, this.#directions, options);
    return new StreamCall(this.#method, terms, input, options);
  }

  #begun(input: unknown, options: StreamCallOptions | undefined): StreamCall {
    const stream = this.#open(input, options);
    stream.begin(undefined, options);
    return stream;
  }

  #pumped(source: ItemSource<unknown>, input: unknown, options: StreamCallOptions | undefined): StreamCall {
    const stream = this.#open(input, options);
    stream.begin(new PumpedInputs(stream, source), options);
    return stream;
  }

  #written(input: unknown, options: StreamCallOptions | undefined): [StreamCall, ItemQueue] {
    const stream = this.#open(input, options);
    const queue = new ItemQueue(this.#method.items);
    queue.belongTo(stream);
    stream.begin(queue, options);
    return [stream, queue];
  }
}

/** The caller's own promise: where nobody handles its error, the process hears of it. */
function answerOf(stream: StreamCall): Promise<unknown> {
  return (stream.answer as Promise<unknown>).then((value) => value, throwWithFrames);
}

/** The inputs of a stream that come from an iterable. */
class PumpedInputs extends Pump implements InputSource {
  readonly #stream: StreamCall;

  constructor(stream: StreamCall, source: ItemSource<unknown>) {
    super(source, stream.method.items, "original", stream.around);
    this.#stream = stream;
  }

  close(): void {
    void this.stop();
  }

  protected override onSourceEnded(): void {
    this.#stream.endInputs();
  }

  protected override onSourceFailed(error: unknown): void {
    this.#stream.onSourceFailed(error);
  }

  protected override onItemUnsendable(error: unknown): void {
    this.#stream.onItemUnsendable(error);
  }

  protected override onItemMisfit(issues: string): void {
    this.#stream.onItemMisfit(issues);
  }
}

/** The items of the server, as their consumer has them. */
class Outputs extends IteratedOnce implements ItemStream<unknown> {
  readonly #stream: StreamCall;

  constructor(stream: StreamCall) {
    super();
    this.#stream = stream;
  }

  next(): Promise<IteratorResult<unknown, undefined>> {
    return this.#stream.receiver.next();
  }

  return(): Promise<IteratorResult<unknown, undefined>> {
    return this.#stream.receiver.return();
  }

  cancel(reason?: unknown): void {
    this.#stream.cancel(reason);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stream.cancel(undefined);
  }
}

class DuplexWriter extends Outputs implements DuplexStreamWriter<unknown, unknown> {
  readonly #queue: ItemQueue;

  constructor(stream: StreamCall, queue: ItemQueue) {
    super(stream);
    this.#queue = queue;
  }

  send(item: unknown): Promise<void> {
    return this.#queue.send(item);
  }

  end(): Promise<void> {
    return this.#queue.end();
  }
}

class AnswerWriter implements ClientStreamWriter<unknown, unknown>, ItemWriter<unknown> {
  readonly #stream: StreamCall;
  readonly #queue: ItemQueue;

  constructor(stream: StreamCall, queue: ItemQueue) {
    this.#stream = stream;
    this.#queue = queue;
  }

  send(item: unknown): Promise<void> {
    return this.#queue.send(item);
  }

  end(): Promise<unknown> {
    // What hinders the end is the error of the answer, or the answer has come already.
    this.#queue.end().catch((_error: RpcError) => {});
    return answerOf(this.#stream);
  }

  cancel(reason?: unknown): void {
    this.#stream.cancel(reason);
  }
}
