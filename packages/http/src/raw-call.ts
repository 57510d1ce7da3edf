import { type CallOptions, type Engine, type Metadata, RpcError } from "cinnabar/standard";
import type { BodyPieces, BodyReader } from "./body.ts";
import { errorAnswer, Refusal } from "./errors.ts";
import type { HttpAnswer, HttpRequest, ItemsBody } from "./exchange.ts";
import { headersOf, rawHeadersOf } from "./headers.ts";
import { jsonOfValue } from "./json/values.ts";
import type { HttpMethod } from "./methods.ts";
import type { HttpLimits } from "./options.ts";
import { bodyPartOf, partOf, type Range, rangeOf } from "./ranges.ts";
import type { RawField, RawForm } from "./raw-form.ts";

/** The memory of one byte stream. It is small, so that many of them fit the budget of bodies. */
const ring = { chunkBytes: 128 * 1024, chunks: 4 };

/** The end of a byte stream that this side reads or writes, as `BulkStream` of `cinnabar-bulk` has it. */
type StreamClass = new (
  engine: Engine,
  direction: "read" | "write",
  shape: typeof ring,
) => {
  readonly writable: WritableStream<Uint8Array>;
  readonly readable: ReadableStream<Uint8Array>;
};

/** The package is needed where a method has a byte stream, and its contract has the field from there. */
const streamClass = async () => (await import("cinnabar-bulk/standard")).BulkStream as unknown as StreamClass;

/** A call of a method whose request or answer is plain bytes. */
export class RawCall {
  readonly #method: HttpMethod;
  readonly #raw: RawForm;
  readonly #request: HttpRequest;
  readonly #bodies: BodyReader;
  readonly #client: string | undefined;
  readonly #limits: HttpLimits;
  readonly #stop = new AbortController();
  /** Memory and places that the call gives back at its end. */
  readonly #onEnd: (() => void)[];
  /** The part that the answer is to be. */
  readonly #range: Range | undefined;
  /** Memory that the handler writes. */
  #memory = new Uint8Array();
  /** The answer, while its bytes are sent. */
  #streaming: StreamedBody | undefined;
  #headers: Metadata | undefined;
  #trailers: Metadata | undefined;
  #onHeaders = () => {};
  /** What the client did wrong while its body was read. */
  #fault: Refusal | undefined;

  /** `onEnd` is called once, when the answer has ended. */
  constructor(
    method: HttpMethod,
    raw: RawForm,
    request: HttpRequest,
    {
      bodies,
      client,
      limits,
      onEnd,
    }: {
      readonly bodies: BodyReader;
      readonly client: string | undefined;
      readonly limits: HttpLimits;
      onEnd(): void;
    },
  ) {
    this.#method = method;
    this.#raw = raw;
    this.#request = request;
    this.#bodies = bodies;
    this.#client = client;
    this.#limits = limits;
    this.#onEnd = [onEnd];
    const range = rangeOf(request);
    // Where the handler begins at an offset, the last bytes and a condition cannot be decided before its headers.
    const isOpen = range !== undefined && ("last" in range || request.header("if-range") !== undefined);
    this.#range = raw.offset !== undefined && isOpen ? undefined : range;
  }

  /** The JSON of the input, with the offset. @throws Refusal for a message that has a field of the bytes. */
  complete(json: unknown): unknown {
    if (typeof json !== "object" || json === null || Array.isArray(json))
      throw new Refusal("invalid_argument", "the message is not an object");
    const { body, answer, offset } = this.#raw;
    const memory = answer?.kind === "bytes" ? undefined : answer?.name;
    for (const name of [body?.name, memory, offset])
      if (name !== undefined && Object.hasOwn(json, name))
        throw new Refusal(
          "invalid_argument",
          `the message has the field "${name}", which the request sets otherwise`,
        );
    return offset === undefined ? json : { ...json, [offset]: this.#offset };
  }

  /** Where the handler begins. @throws Refusal for a `content-range` that the method does not take, or that is wrong. */
  get #offset(): number {
    if (this.#raw.body !== undefined) return bodyPartOf(this.#request)?.from ?? 0;
    return this.#raw.offset !== undefined && this.#range !== undefined && "from" in this.#range
      ? this.#range.from
      : 0;
  }

  /** Makes the call and answers by its result. It gives back all that it holds when the answer has ended. */
  async answer(input: unknown, options: CallOptions): Promise<HttpAnswer> {
    const { signal } = this.#request;
    const onGone = () => {
      this.#cancel("the client has gone away");
      // A runtime may drop the answer then, and never read nor cancel its body.
      this.#streaming?.cancel();
    };
    if (signal.aborted) onGone();
    else signal.addEventListener("abort", onGone, { once: true });
    this.#onEnd.push(() => signal.removeEventListener("abort", onGone));
    try {
      const { body, answer } = this.#raw;
      const values: Record<string, unknown> = {};
      const pieces = await this.#takeBody(values);
      if (answer?.kind === "region") values[answer.name] = await this.#region("write", this.#answerMemory());
      const source = answer?.kind === "stream" ? await this.#stream("write", answer, values) : undefined;
      const sink = body?.kind === "stream" ? await this.#stream("read", body, values) : undefined;
      const whole = Object.keys(values).length === 0 ? input : { ...(input as object), ...values };
      const outcome = this.#call(whole, options);
      if (sink !== undefined && pieces !== undefined) this.#send(pieces, sink.writable, outcome);
      if (source !== undefined) return await this.#streamed(source.readable, outcome);
      const answered = this.#answered(await outcome);
      this.#finish();
      return answered;
    } catch (error) {
      this.#cancel("the request failed");
      this.#finish();
      const failure = this.#fault ?? error;
      if (!(failure instanceof RpcError)) throw failure;
      return errorAnswer(failure, this.#given());
    }
  }

  async #call(input: unknown, options: CallOptions): Promise<unknown> {
    const call = await this.#method.function();
    return call(input, {
      ...options,
      signal: this.#stop.signal,
      onHeaders: (headers: Metadata) => {
        this.#headers = headers;
        this.#onHeaders();
      },
      onTrailers: (trailers: Metadata) => {
        this.#trailers = trailers;
      },
    } as CallOptions);
  }

  /** Reads a body that is held in memory into `values`; the pieces of one that goes into a byte stream. */
  async #takeBody(values: Record<string, unknown>): Promise<BodyPieces | undefined> {
    const { body, offset, maxBytes = this.#limits.maxBodyBytes } = this.#raw;
    if (body === undefined) return undefined;
    const part = bodyPartOf(this.#request);
    if (part !== undefined && offset === undefined)
      throw new Refusal("invalid_argument", "the method takes no content-range");
    if (body.kind === "stream") {
      const pieces = this.#bodies.pieces(this.#request, this.#raw.maxBytes);
      this.#onEnd.push(() => pieces.end());
      if (part !== undefined) pieces.expect(part.bytes);
      return pieces;
    }
    const { bytes, release } = await this.#bodies.readWhole(this.#request, this.#client, maxBytes);
    this.#onEnd.push(release);
    if (part !== undefined && part.bytes !== bytes.byteLength)
      throw new Refusal("invalid_argument", "the content-range and the content-length differ");
    values[body.name] = body.kind === "bytes" ? bytes : await this.#region("read", bytes);
    return undefined;
  }

  async #region(access: "read" | "write", bytes: Uint8Array): Promise<unknown> {
    const region = (await this.#method.engine()).expose(bytes, { access });
    this.#onEnd.push(() => region.dispose());
    return region;
  }

  /** Memory of the length that the client asks for, or of the most bytes. Without an offset a part is cut out of all. */
  #answerMemory(): Uint8Array {
    const { offset, maxBytes = this.#limits.maxBodyBytes } = this.#raw;
    const range = offset === undefined ? undefined : this.#range;
    const wanted =
      range === undefined || "last" in range || range.to === undefined ? maxBytes : range.to - range.from + 1;
    const bytes = Math.min(maxBytes, wanted);
    this.#onEnd.push(this.#bodies.hold(bytes, this.#client));
    this.#memory = new Uint8Array(bytes);
    return this.#memory;
  }

  async #stream(
    direction: "read" | "write",
    { name }: RawField,
    values: Record<string, unknown>,
  ): Promise<InstanceType<StreamClass>> {
    this.#onEnd.push(this.#bodies.hold(ring.chunkBytes * ring.chunks, this.#client));
    const [Stream, engine] = [await streamClass(), await this.#method.engine()];
    const stream = new Stream(engine, direction, ring);
    values[name] = stream;
    return stream;
  }

  /** Moves the body into the stream as fast as the handler reads, until the body or the call ends. */
  async #send(
    pieces: BodyPieces,
    writable: WritableStream<Uint8Array>,
    outcome: Promise<unknown>,
  ): Promise<void> {
    const over = new Refusal("cancelled", "the call has ended");
    const writer = writable.getWriter();
    const stop = () => {
      pieces.stop(over);
      // A call that was never sent leaves its stream alone.
      writer.abort(over).catch(() => {});
    };
    outcome.then(stop, stop);
    try {
      for (;;) {
        const piece = await pieces.next();
        if (piece === undefined) break;
        await writer.write(piece);
      }
      await writer.close();
    } catch (error) {
      // A stream fails with its call, whose outcome says why.
      if (!(error instanceof Refusal) || error === over) return;
      this.#fault = error;
      this.#cancel(error.message);
    }
  }

  /** The answer of a call whose output has come. */
  #answered(output: unknown): HttpAnswer {
    const { answer, offset } = this.#raw;
    if (answer === undefined) {
      const headers = [["content-type", "application/json"] as const, ...this.#given()];
      return { status: 200, headers, body: output === undefined ? "{}" : jsonOfValue(output) };
    }
    const fields = (output ?? {}) as Readonly<Record<string, unknown>>;
    const given = answer.kind === "bytes" ? (fields[answer.name] as Uint8Array) : this.#written(fields);
    const range = this.#range;
    // Without an offset the handler knows no part, and has begun at its first byte.
    if (offset === undefined || range === undefined || "last" in range) return this.#part(given);
    const { from, to = Number.MAX_SAFE_INTEGER } = range;
    const bytes = given.subarray(0, to - from + 1);
    if (bytes.byteLength === 0) throw new Refusal("out_of_range", "there are no bytes there", 416);
    const headers = [
      ...rawHeadersOf(this.#headers),
      ["content-range", `bytes ${from}-${from + bytes.byteLength - 1}/*`] as const,
    ];
    return { status: 206, headers, body: bytes };
  }

  /** What the handler has written into the memory of the answer. */
  #written(fields: Readonly<Record<string, unknown>>): Uint8Array {
    const { length } = this.#raw;
    const count = length === undefined ? this.#memory.byteLength : Number(fields[length]);
    if (!Number.isInteger(count) || count < 0 || count > this.#memory.byteLength)
      throw new Error(`httpHandler: ${this.#method.name} has written ${fields[length ?? ""]} bytes`);
    return this.#memory.subarray(0, count);
  }

  /** All bytes, or the part of them that the client asks for. */
  #part(bytes: Uint8Array): HttpAnswer {
    const { status, headers, from, to } = this.#window(bytes.byteLength, 0);
    return { status, headers, body: bytes.subarray(from, to) };
  }

  /** The answer by what of `size` bytes is sent; the handler begins at `begin`. @throws Refusal for a part behind the end. */
  #window(
    size: number,
    begin: number,
  ): { status: number; headers: HttpAnswer["headers"]; from: number; to: number } {
    const own = [...rawHeadersOf(this.#headers), ["accept-ranges", "bytes"] as const];
    const wanted = this.#isCurrent(own) ? this.#range : undefined;
    // The last bytes of nothing are nothing, which no content-range can say.
    const isNothing = wanted !== undefined && "last" in wanted && wanted.last > 0 && size === 0;
    const range = isNothing ? undefined : wanted;
    if (range === undefined) return { status: 200, headers: own, from: begin, to: size };
    const { from, to } = partOf(range, size);
    const headers = [...own, ["content-range", `bytes ${from}-${to - 1}/${size}`] as const];
    return { status: 206, headers, from, to };
  }

  /** Whether the part belongs to what the client has already. Otherwise it wants all. */
  #isCurrent(headers: HttpAnswer["headers"]): boolean {
    const condition = this.#request.header("if-range");
    if (condition === undefined) return true;
    return headers.some(
      ([name, value]) =>
        (name === "etag" || name === "last-modified") && value === condition && !value.startsWith("W/"),
    );
  }

  /** The answer whose bytes the handler writes while they are sent. It has come when there is something to send. */
  async #streamed(readable: ReadableStream<Uint8Array>, outcome: Promise<unknown>): Promise<HttpAnswer> {
    const reader = readable.getReader();
    const known = new Promise<void>((resolve) => {
      this.#onHeaders = resolve;
    });
    const first = reader.read();
    outcome.catch(() => {});
    try {
      // A call that was never sent leaves its stream alone.
      await Promise.race([known, first, outcome.then(() => first)]);
    } catch (error) {
      // The outcome says more than the stream, where there is one. The handler may also end the stream alone.
      await Promise.race([outcome, Promise.reject(error)]);
    }
    first.catch(() => {});
    const size = this.#size();
    const begin = this.#offset;
    if (size === undefined) {
      if (begin > 0)
        throw new Error(`httpHandler: ${this.#method.name} has an offset, so it must send content-length`);
      return { status: 200, headers: rawHeadersOf(this.#headers), body: this.#body(reader, first, outcome) };
    }
    const { status, headers, from, to } = this.#window(size, begin);
    const window = { skip: from - begin, left: to - from, isPart: to < size };
    const body = this.#body(reader, first, outcome, window);
    return { status, headers: [...headers, ["content-length", String(to - from)]], body };
  }

  #body(...args: StreamedBodyArgs): StreamedBody {
    const body = new StreamedBody(this.#method.name, this.#ending, ...args);
    this.#streaming = body;
    if (this.#request.signal.aborted) body.cancel();
    return body;
  }

  /** How many bytes there are in all, as the handler says. */
  #size(): number | undefined {
    const text = this.#headers?.get("content-length");
    if (text === undefined) return undefined;
    if (typeof text === "string" && /^\d{1,15}$/.test(text)) return Number(text);
    throw new Error(`httpHandler: ${this.#method.name} has sent a content-length that is no number`);
  }

  readonly #ending = (isCut: boolean): void => {
    if (isCut) this.#cancel("the client takes no more");
    this.#finish();
  };

  #given(): [string, string][] {
    return [...headersOf(this.#headers), ...headersOf(this.#trailers, "trailer-")];
  }

  #cancel(message: string): void {
    this.#stop.abort(new RpcError({ code: "cancelled", message }));
  }

  #finish(): void {
    for (const end of this.#onEnd.splice(0)) end();
  }
}

type Reader = ReadableStreamDefaultReader<Uint8Array>;

/** The stream with its first piece, the outcome of its call, and which part of it is sent. */
type StreamedBodyArgs = [
  reader: Reader,
  first: ReturnType<Reader["read"]>,
  outcome: Promise<unknown>,
  window?: { readonly skip: number; readonly left: number; readonly isPart: boolean },
];

/** The bytes of a stream as the body of an answer, or a part of them. */
class StreamedBody implements ItemsBody {
  readonly #name: string;
  readonly #reader: Reader;
  #first: ReturnType<Reader["read"]> | undefined;
  readonly #outcome: Promise<unknown>;
  readonly #onEnd: (isCut: boolean) => void;
  #skip: number;
  /** The bytes that are still to be sent; undefined where nobody knows. */
  #left: number | undefined;
  readonly #isPart: boolean;
  /** The bytes that complete the announced length. They wait for the outcome: a client that has them sees no cut. */
  #last: Uint8Array | undefined;
  #state: "open" | "complete" | "cut" = "open";

  constructor(
    name: string,
    onEnd: (isCut: boolean) => void,
    ...[reader, first, outcome, window]: StreamedBodyArgs
  ) {
    this.#name = name;
    this.#reader = reader;
    this.#first = first;
    this.#outcome = outcome;
    this.#onEnd = onEnd;
    this.#skip = window?.skip ?? 0;
    this.#left = window?.left;
    this.#isPart = window?.isPart ?? false;
  }

  async next(): Promise<Uint8Array | undefined> {
    try {
      for (;;) {
        if (this.#state === "complete") return undefined;
        if (this.#state === "cut") throw new Error("the answer was cut off");
        if (this.#left === 0 && this.#isPart) {
          this.#state = "complete";
          this.#onEnd(true);
          return undefined;
        }
        const { done, value } = await (this.#first ?? this.#reader.read());
        this.#first = undefined;
        if (done) {
          await this.#end();
          return this.#last;
        }
        const bytes = this.#cut(value);
        if (bytes.byteLength === 0) continue;
        if (this.#left !== 0 || this.#isPart) return bytes;
        this.#last = bytes;
      }
    } catch (error) {
      this.cancel();
      throw error;
    }
  }

  cancel(): void {
    if (this.#state !== "open") return;
    this.#state = "cut";
    this.#onEnd(true);
  }

  /** What of a piece is sent. @throws Error for more bytes than were announced. */
  #cut(piece: Uint8Array): Uint8Array {
    const skipped = Math.min(this.#skip, piece.byteLength);
    this.#skip -= skipped;
    const bytes = skipped === 0 ? piece : piece.subarray(skipped);
    if (this.#left === undefined) return bytes;
    if (bytes.byteLength > this.#left && !this.#isPart)
      throw new Error(`httpHandler: ${this.#name} has written more bytes than its content-length`);
    const sent = bytes.byteLength > this.#left ? bytes.subarray(0, this.#left) : bytes;
    this.#left -= sent.byteLength;
    return sent;
  }

  /** The end holds when the call has succeeded. @throws what cuts the answer off. */
  async #end(): Promise<void> {
    if (this.#left !== undefined && this.#left > 0)
      throw new Error(`httpHandler: ${this.#name} has written fewer bytes than its content-length`);
    await this.#outcome;
    this.#state = "complete";
    this.#onEnd(false);
  }
}
