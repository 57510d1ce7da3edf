import { type ItemStream, type Metadata, RpcError } from "cinnabar/standard";
import { BodyReader } from "./body.ts";
import { compressed, isCompressible } from "./compression.ts";
import { errorAnswer, Refusal } from "./errors.ts";
import type { HttpAnswer, HttpRequest } from "./exchange.ts";
import { headersOf, metadataOf } from "./headers.ts";
import { jsonOfValue } from "./json/values.ts";
import { type HttpMethod, Methods } from "./methods.ts";
import { OpenRequests } from "./open-requests.ts";
import type { ResolvedHttpOptions } from "./options.ts";
import { Origins } from "./origins.ts";
import { RawCall } from "./raw-call.ts";
import type { RawForm } from "./raw-form.ts";
import { assertIdentity, assertType, enveloped, inputOf, messageOf, timeoutOf } from "./request.ts";
import { sentItems } from "./sent-items.ts";
import { endId, envelopes, OneAnswer, StreamCall, serverSentEvents } from "./streams.ts";

/** The headers of each answer, beside its own: no browser guesses a type. */
const always = [["x-content-type-options", "nosniff"]] as const;

/** What a request gives to its call. */
interface CallInput {
  readonly input: unknown;
  readonly options: {
    readonly timeoutMs?: number;
    readonly metadata?: Metadata;
    readonly signal: AbortSignal;
  };
}

/** Answers requests by calls, whatever server they come from. */
export class HttpServer {
  readonly #options: ResolvedHttpOptions;
  readonly #methods: Methods;
  readonly #origins: Origins;
  readonly #bodies: BodyReader;
  readonly #requests: OpenRequests;
  readonly #streams: OpenRequests;
  #isClosed = false;

  constructor(options: ResolvedHttpOptions) {
    const { limits } = options;
    this.#options = options;
    this.#methods = new Methods(options);
    const hasBytes = options.allow.some(({ body, answer }) => (body ?? answer) !== undefined);
    this.#origins = new Origins(options.cors, options.requestHeaders, hasBytes);
    this.#bodies = new BodyReader(limits);
    this.#requests = new OpenRequests(limits.maxRequests, limits.maxRequestsByClient);
    this.#streams = new OpenRequests(limits.maxStreams, limits.maxStreamsByClient);
  }

  close(): Promise<void> {
    this.#isClosed = true;
    return this.#methods.close();
  }

  /** How long a client may leave bytes of a stream untaken, in milliseconds. */
  get maxStallMs(): number {
    return this.#options.limits.maxStallMs;
  }

  /** Answers a request. It never rejects. */
  async answer(request: HttpRequest): Promise<HttpAnswer> {
    let answer: HttpAnswer;
    try {
      answer = await this.#route(request);
      if (this.#options.compress && isCompressible(answer)) answer = await compressed(request, answer);
    } catch (error) {
      if (!(error instanceof Refusal || error instanceof RpcError)) this.#report(error);
      answer = errorAnswer(error);
    }
    const cors = this.#origins.headersFor(request, answer.headers);
    // A preflight has them already.
    const headers = request.method === "OPTIONS" ? answer.headers : [...answer.headers, ...cors];
    return { ...answer, headers: [...always, ...headers] };
  }

  /** A callback that fails, at once or later, takes no answer away. */
  #report(error: unknown): void {
    const complain = (failure: unknown) => console.error("cinnabar-http: onError has failed:", failure);
    try {
      Promise.resolve(this.#options.onError(error) as unknown).catch(complain);
    } catch (failure) {
      complain(failure);
    }
  }

  async #route(request: HttpRequest): Promise<HttpAnswer> {
    const isGet = request.method === "GET" || request.method === "HEAD";
    const probe = isGet ? await this.#probe(request.path) : undefined;
    if (probe !== undefined) return probe;
    if (this.#isClosed) throw new Refusal("unavailable", "the server closes");
    if (request.method === "OPTIONS") return this.#origins.preflight(request);
    this.#origins.assertAllowed(request);
    const method = this.#methods.find(request.path);
    if (method === undefined) throw new Refusal("unimplemented", "there is no such method", 404);
    if (!method.verbs.includes(request.method)) {
      const verbs = method.verbs.join(", ");
      throw new Refusal("unimplemented", `the method takes ${verbs}`, 405, [["allow", verbs]]);
    }
    if (method.raw !== undefined) return this.#raw(method, method.raw, request, isGet);
    if (method.kind === "serverStream" || method.items !== undefined)
      return this.#stream(method, request, isGet);
    const client = this.#clientOf(request);
    const end = this.#requests.begin(client);
    try {
      return await this.#call(method, request, client, isGet);
    } finally {
      end();
    }
  }

  #clientOf(request: HttpRequest): string | undefined {
    return this.#options.clientOf?.(request);
  }

  /** The answer to a probe of health; undefined for any other path. */
  async #probe(path: string): Promise<HttpAnswer | undefined> {
    const { health, prefix } = this.#options;
    const isReadiness = path === `${prefix}/readyz`;
    if (health === false || !(isReadiness || path === `${prefix}/livez`)) return undefined;
    const isWell =
      !isReadiness || (!this.#isClosed && (health === true || (await Promise.resolve(health())) === true));
    const headers = [
      ["content-type", "text/plain; charset=utf-8"],
      ["cache-control", "no-store"],
    ] as const;
    return { status: isWell ? 200 : 503, headers, body: isWell ? "ok\n" : "not ready\n" };
  }

  async #call(
    method: HttpMethod,
    request: HttpRequest,
    client: string | undefined,
    isGet: boolean,
  ): Promise<HttpAnswer> {
    if (!isGet) assertType(request, ["application/json"]);
    const { input, options } = await this.#read(method, request, client, isGet);
    let headers: Metadata | undefined;
    let trailers: Metadata | undefined;
    const onHeaders = (received: Metadata) => {
      headers = received;
    };
    const onTrailers = (received: Metadata) => {
      trailers = received;
    };
    const given = () => [...headersOf(headers), ...headersOf(trailers, "trailer-")];
    try {
      // The caller of a one-way call receives no metadata.
      const all = method.kind === "oneWay" ? options : { ...options, onHeaders, onTrailers };
      const output = await (await method.function())(input, all);
      const body = output === undefined ? "{}" : jsonOfValue(output);
      return { status: 200, headers: [["content-type", "application/json"], ...given()], body };
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      return errorAnswer(error, given());
    }
  }

  async #raw(method: HttpMethod, raw: RawForm, request: HttpRequest, isGet: boolean): Promise<HttpAnswer> {
    if (request.method === "PUT") assertIdentity(request);
    else if (!isGet)
      assertType(request, [raw.body === undefined ? "application/json" : "application/octet-stream"]);
    const { limits } = this.#options;
    const client = this.#clientOf(request);
    const onEnd = this.#streams.begin(client);
    try {
      const call = new RawCall(method, raw, request, { bodies: this.#bodies, client, limits, onEnd });
      const isInQuery = isGet || raw.body !== undefined;
      const { input, options } = await this.#read(method, request, client, isInQuery, (json) =>
        call.complete(json),
      );
      // Many bytes take longer than a call.
      const timeoutMs = options.timeoutMs ?? method.timeoutMs ?? limits.maxTimeoutMs;
      return await call.answer(input, { ...options, timeoutMs });
    } catch (error) {
      onEnd();
      throw error;
    }
  }

  async #stream(method: HttpMethod, request: HttpRequest, isGet: boolean): Promise<HttpAnswer> {
    if (isGet && request.header("last-event-id") === endId)
      return { status: 204, headers: [], body: undefined };
    const { items } = method;
    if (method.kind === "duplexStream" && request.isHttp1)
      throw new Refusal("unimplemented", "a duplex stream needs HTTP/2", 505);
    const types = [...(items === undefined ? ["application/json"] : []), "application/connect+json"];
    const isEnveloped = !isGet && assertType(request, types) === "application/connect+json";
    const form = isEnveloped ? envelopes : serverSentEvents;
    let end = () => {};
    try {
      const client = this.#clientOf(request);
      end = this.#streams.begin(client);
      // The body has the items, so the input comes from the query.
      const { input, options } =
        items === undefined
          ? await this.#read(method, request, client, isGet, undefined, isEnveloped)
          : await this.#read(method, request, client, true, (json) => json);
      const open = await method.function();
      const pieces = items === undefined ? undefined : this.#bodies.pieces(request);
      const sent =
        items === undefined || pieces === undefined
          ? undefined
          : sentItems(pieces, (bytes) => this.#bodies.hold(bytes, client), items, this.#options.limits);
      const stop = new AbortController();
      const onGone = () => call.cancel();
      const call = new StreamCall(
        form,
        (metadata) => {
          const made = open(input, { ...options, ...metadata, signal: stop.signal }, sent);
          return method.kind === "clientStream"
            ? new OneAnswer(made as Promise<unknown>, () => stop.abort())
            : (made as ItemStream<unknown>);
        },
        () => {
          request.signal.removeEventListener("abort", onGone);
          pieces?.end();
          end();
        },
      );
      // A runtime may drop the answer of a client that has gone away, and never read nor cancel its body.
      if (request.signal.aborted) onGone();
      else request.signal.addEventListener("abort", onGone, { once: true });
      return await call.answer();
    } catch (error) {
      end();
      // A stream of envelopes has the status 200 in any case.
      if (!isEnveloped) throw error;
      if (error instanceof RpcError) return envelopes.failed(error);
      if (!(error instanceof Refusal)) throw error;
      const { code, message } = error;
      return envelopes.failed(new RpcError({ code, message, origin: "remote" }));
    }
  }

  /**
   * Reads the message of a request, by the method's schema. `complete` gets its JSON before.
   *
   * @throws Refusal that says what does not fit.
   */
  async #read(
    method: HttpMethod,
    request: HttpRequest,
    client: string | undefined,
    isInQuery: boolean,
    complete?: (json: unknown) => unknown,
    isEnveloped = false,
  ): Promise<CallInput> {
    const startMs = performance.now();
    const { limits, requestHeaders } = this.#options;
    const timeoutMs = timeoutOf(request, limits.maxTimeoutMs);
    const metadata = metadataOf(request, requestHeaders);
    const body = isInQuery
      ? messageOf(request.query, limits.maxBodyBytes)
      : await this.#bodies.read(request, client, timeoutMs);
    const message = isEnveloped ? enveloped(body) : body;
    const input = inputOf(method, message, limits.maxJsonDepth, complete);
    const leftMs = timeoutMs === undefined ? undefined : timeoutMs - (performance.now() - startMs);
    const options = {
      ...(leftMs === undefined ? {} : { timeoutMs: Math.max(1, leftMs) }),
      ...(metadata === undefined ? {} : { metadata }),
      signal: request.signal,
    };
    return { input, options };
  }
}
