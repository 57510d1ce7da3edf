import type { Middleware } from "../call/middleware.ts";
import type { CallResult } from "../contract/infer.ts";
import type {
  ClientStreamWriter,
  DuplexStreamWriter,
  ItemSource,
  ItemStream,
} from "../contract/item-stream.ts";
import type { AnyMethod } from "../contract/method.ts";
import type { AnyService } from "../contract/service.ts";
import { Items } from "../session/streams/item-receiver.ts";
import type { InputSource } from "../session/streams/item-sender.ts";
import { directionsOf } from "../session/streams/items-of-call.ts";
import { Pump } from "../session/streams/pump.ts";
import type { ItemDirections } from "../transfer/control/control-method.ts";
import { assertStreamOptions, type StreamCallOptions } from "./call-options.ts";
import type { ClientMethod } from "./client-method.ts";
import { type ItemQueue, ReadInputs, SentInputs } from "./item-queue.ts";
import { resultOf, withItems, withOptions } from "./method-function.ts";
import { type BeginStream, chainOf, SurroundedStream, Surroundings } from "./middleware.ts";
import { StreamCall, type StreamTerms, streamTerms } from "./stream-call.ts";
import { AnswerWriter, DuplexWriter, Outputs, type UserStream } from "./user-stream.ts";

type StreamKind = "serverStream" | "clientStream" | "duplexStream";

/** The client's function for a stream method. */
export function streamFunction(
  method: ClientMethod,
  kind: StreamKind,
  service: AnyService,
  middleware: readonly Middleware[],
): unknown {
  const opener = new StreamOpener(method, directionsOf[kind] as ItemDirections, service, middleware);
  if (kind === "serverStream")
    return withOptions(
      method,
      (input: unknown, options?: StreamCallOptions): ItemStream<unknown> =>
        new Outputs(opener.open(undefined, input, options)),
    );
  if (kind === "duplexStream") {
    const call = (input: unknown, items: unknown, options?: StreamCallOptions): ItemStream<unknown> =>
      new Outputs(opener.open(items, input, options));
    const open = (input: unknown, options?: StreamCallOptions): DuplexStreamWriter<unknown, unknown> =>
      new DuplexWriter(...opener.write(input, options));
    return Object.freeze(Object.assign(withItems(method, call), { open: withOptions(method, open) }));
  }
  const call = (input: unknown, items: unknown, options?: StreamCallOptions): Promise<unknown> =>
    opener.open(items, input, options).answered();
  const result = (
    input: unknown,
    items: unknown,
    options?: StreamCallOptions,
  ): Promise<CallResult<AnyMethod>> => resultOf(call(input, items, options));
  const open = (input: unknown, options?: StreamCallOptions): ClientStreamWriter<unknown, unknown> =>
    new AnswerWriter(...opener.write(input, options));
  return Object.freeze(
    Object.assign(withItems(method, call), {
      result: withItems(method, result),
      open: withOptions(method, open),
    }),
  );
}

/** Opens the streams of one method of a client, through middleware if there is any. */
class StreamOpener {
  readonly #method: ClientMethod;
  readonly #directions: ItemDirections;
  /** The terms of streams without options. */
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

  /** Opens a stream. `source` has its inputs, if it has any. */
  open(source: unknown, input: unknown, options: StreamCallOptions | undefined): UserStream {
    const chain = this.#chain(options);
    if (chain === undefined) return this.#begin(source, input, options);
    return this.#through(chain, source, input, options);
  }

  /** Opens a stream whose inputs are sent one by one. */
  write(input: unknown, options: StreamCallOptions | undefined): [UserStream, ItemQueue] {
    const chain = this.#chain(options);
    if (chain === undefined) {
      const stream = this.#make(input, options);
      const inputs = new SentInputs(stream);
      stream.begin(inputs, options);
      return [stream, inputs];
    }
    const inputs = new ReadInputs();
    return [this.#through(chain, new Items(inputs), input, options, inputs), inputs];
  }

  /** The middleware of a stream with these options. Undefined without middleware. */
  #chain(options: StreamCallOptions | undefined): readonly Middleware[] | undefined {
    if (options !== undefined) assertStreamOptions(options);
    return chainOf(this.#middleware, options);
  }

  #make(input: unknown, options: StreamCallOptions | undefined): StreamCall {
    const terms = options === undefined ? this.#terms : streamTerms(this.#method, this.#directions, options);
    return new StreamCall(this.#method, terms, input, options);
  }

  #begin(source: unknown, input: unknown, options: StreamCallOptions | undefined): StreamCall {
    const stream = this.#make(input, options);
    const inputs = this.#directions.inputs
      ? new PumpedInputs(stream, source as ItemSource<unknown>)
      : undefined;
    stream.begin(inputs, options);
    return stream;
  }

  #through(
    chain: readonly Middleware[],
    source: unknown,
    input: unknown,
    options: StreamCallOptions | undefined,
    sent?: ReadInputs,
  ): SurroundedStream {
    const { inputs, outputs } = this.#directions;
    const begin: BeginStream = (given, inner) =>
      inputs ? this.#begin(given, input, inner) : this.#begin(undefined, given, inner);
    const given = inputs ? source : input;
    const opening = inputs ? input : undefined;
    const call = new Surroundings(this.#service, this.#method, given, opening, options, outputs);
    return new SurroundedStream(call, chain, begin, sent);
  }
}

/** The inputs of a stream that come from an iterable. */
class PumpedInputs extends Pump implements InputSource {
  readonly #stream: StreamCall;

  constructor(stream: StreamCall, source: ItemSource<unknown>) {
    super(source, stream.method.contract.items, "original");
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
