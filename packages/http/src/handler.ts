import { type Metadata, RpcError } from "cinnabar/standard";
import { BodyReader } from "./body.ts";
import { errorAnswer, Refusal } from "./errors.ts";
import type { Exchange, HttpAnswer, HttpRequest } from "./exchange.ts";
import { headersOf, metadataOf } from "./headers.ts";
import { fromBase64 } from "./json/base64.ts";
import { JsonTextError, parseJson } from "./json/parse.ts";
import { TooLong } from "./json/schema.ts";
import { JsonValueError, jsonOfValue } from "./json/values.ts";
import { type HttpMethod, Methods } from "./methods.ts";
import { type HttpOptions, type ResolvedHttpOptions, resolveHttpOptions } from "./options.ts";
import { Origins } from "./origins.ts";

/** Answers requests of HTTP by calls of services. Made by `httpHandler`. */
export interface HttpHandler extends AsyncDisposable {
  /** Answers one request. It never rejects. */
  (request: Request): Promise<Response>;
  /**
   * Refuses further requests, lets the open calls of the implementations end, and closes their engine. Peers stay
   * open: they are their owners'.
   */
  close(): Promise<void>;
}

const exchanges = new WeakMap<HttpHandler, Exchange>();

/** The handler's work without the classes of fetch. @throws TypeError for anything else. */
export function exchangeOf(where: string, handler: HttpHandler): Exchange {
  const exchange = exchanges.get(handler);
  if (exchange === undefined)
    throw new TypeError(`${where}: the first argument must be made by httpHandler()`);
  return exchange;
}

/**
 * Makes services reachable by HTTP, in Connect's protocol with JSON: `POST /greeter.v1/greet` with the input as
 * `application/json`. The result takes a `Request` and gives a `Response`, as Hono, Next, Bun and Deno want it.
 * `toNodeHandler` makes a listener for `node:http` of it.
 *
 * Only the methods that `allow` names can be called, and by default only from pages of the same origin and from
 * programs. There is no authentication here: list `authorization` in `requestHeaders`, and check it in the service's
 * middleware.
 *
 * @throws TypeError or RangeError for bad options, a name that is no method, and a method that has no form in HTTP.
 *
 * @example
 * const handler = httpHandler({
 *   services: [greeter, { service: Files, peer }],
 *   allow: ["greeter.v1/greet", "files.v1/stat"],
 *   safe: ["files.v1/stat"],
 * });
 * export default { fetch: handler };
 */
export function httpHandler(options: HttpOptions): HttpHandler {
  const server = new HttpServer(resolveHttpOptions(options));
  const exchange: Exchange = (request) => server.answer(request);
  const close = () => server.close();
  const handler: HttpHandler = Object.assign(
    async (request: Request): Promise<Response> => {
      const { status, headers, body } = await exchange(requestOf(request));
      return new Response(request.method === "HEAD" ? null : body, {
        status,
        headers: headers.map(([name, value]): [string, string] => [name, value]),
      });
    },
    { close, [Symbol.asyncDispose]: close },
  );
  exchanges.set(handler, exchange);
  return handler;
}

function requestOf({ method, url, headers, body, signal }: Request): HttpRequest {
  const { pathname, search } = new URL(url);
  return {
    ...{ method, path: pathname, query: search.slice(1), signal },
    body: () => body?.getReader(),
    header: (name) => headers.get(name) ?? undefined,
  };
}

/** The headers of each answer, beside its own: no browser guesses a type. */
const always = [["x-content-type-options", "nosniff"]] as const;

class HttpServer {
  readonly #options: ResolvedHttpOptions;
  readonly #methods: Methods;
  readonly #origins: Origins;
  readonly #bodies: BodyReader;
  #requests = 0;
  #isClosed = false;

  constructor(options: ResolvedHttpOptions) {
    this.#options = options;
    this.#methods = new Methods(options);
    this.#origins = new Origins(options.cors, options.requestHeaders);
    this.#bodies = new BodyReader(options.limits);
  }

  close(): Promise<void> {
    this.#isClosed = true;
    return this.#methods.close();
  }

  async answer(request: HttpRequest): Promise<HttpAnswer> {
    this.#requests++;
    let answer: HttpAnswer;
    try {
      answer = await this.#serve(request);
    } catch (error) {
      if (!(error instanceof Refusal || error instanceof RpcError)) this.#options.onError(error);
      answer = errorAnswer(error);
    } finally {
      this.#requests--;
    }
    const cors = this.#origins.headersFor(request, answer.headers);
    // A preflight has them already.
    const headers = request.method === "OPTIONS" ? answer.headers : [...answer.headers, ...cors];
    return { ...answer, headers: [...always, ...headers] };
  }

  async #serve(request: HttpRequest): Promise<HttpAnswer> {
    if (this.#isClosed) throw new Refusal("unavailable", "the server closes");
    if (this.#requests > this.#options.limits.maxRequests)
      throw new Refusal("resource_exhausted", "the server is busy", 429, [["retry-after", "1"]]);
    if (request.method === "OPTIONS") return this.#origins.preflight(request);
    this.#origins.assertAllowed(request);
    const method = this.#methods.find(request.path);
    if (method === undefined) throw new Refusal("unimplemented", "there is no such method", 404);
    const isGet = request.method === "GET" || request.method === "HEAD";
    if (!(isGet && method.isSafe) && request.method !== "POST") {
      const verbs = method.isSafe ? "GET, HEAD, POST" : "POST";
      throw new Refusal("unimplemented", `the method takes ${verbs}`, 405, [["allow", verbs]]);
    }
    return this.#call(method, request, isGet);
  }

  async #call(method: HttpMethod, request: HttpRequest, isGet: boolean): Promise<HttpAnswer> {
    const startMs = performance.now();
    const { limits, requestHeaders } = this.#options;
    const timeoutMs = timeoutOf(request, limits.maxTimeoutMs);
    if (!isGet) assertJson(request);
    const metadata = metadataOf(request, requestHeaders);
    const message = isGet
      ? messageOf(request.query, limits.maxBodyBytes)
      : await this.#bodies.read(request, timeoutMs);
    const input = inputOf(method, message, limits.maxJsonDepth);
    let headers: Metadata | undefined;
    let trailers: Metadata | undefined;
    const { signal } = request;
    const common = {
      ...(timeoutMs === undefined
        ? {}
        : { timeoutMs: Math.max(1, timeoutMs - (performance.now() - startMs)) }),
      ...(metadata === undefined ? {} : { metadata }),
      signal,
    };
    const given = () => [...headersOf(headers), ...headersOf(trailers, "trailer-")];
    try {
      const output = await method.call(
        input,
        method.kind === "oneWay"
          ? common
          : {
              ...common,
              onHeaders(received) {
                headers = received;
              },
              onTrailers(received) {
                trailers = received;
              },
            },
      );
      const body = output === undefined ? "{}" : jsonOfValue(output);
      return { status: 200, headers: [["content-type", "application/json"], ...given()], body };
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      return errorAnswer(error, given());
    }
  }
}

/** The deadline that the client sets. @throws Refusal for anything but a number of at most ten digits. */
function timeoutOf(request: HttpRequest, maxTimeoutMs: number): number | undefined {
  const version = request.header("connect-protocol-version");
  if (version !== undefined && version !== "1")
    throw new Refusal("invalid_argument", 'the connect-protocol-version is not "1"');
  const text = request.header("connect-timeout-ms");
  if (text === undefined) return undefined;
  if (!/^\d{1,10}$/.test(text))
    throw new Refusal("invalid_argument", "the connect-timeout-ms is not a number of at most 10 digits");
  if (Number(text) === 0)
    throw new RpcError({ code: "deadline_exceeded", message: "the deadline has passed" });
  return Math.min(Number(text), maxTimeoutMs);
}

/**
 * A page of another origin can post text and forms without asking the server first, but not `application/json`.
 *
 * @throws Refusal for any other type, and an encoding.
 */
function assertJson(request: HttpRequest): void {
  const [type = "", ...parameters] = (request.header("content-type") ?? "").toLowerCase().split(";");
  const isUtf8 = parameters.every((each) => /^\s*charset="?utf-8"?\s*$/.test(each));
  if (type.trim() !== "application/json" || !isUtf8)
    throw new Refusal("invalid_argument", "the content type must be application/json", 415, [
      ["accept-post", "application/json"],
    ]);
  const encoding = request.header("content-encoding") ?? "identity";
  if (encoding !== "identity")
    throw new Refusal("unimplemented", "the content encoding must be identity", 501, [
      ["accept-encoding", "identity"],
    ]);
}

/** The message of a GET: `?connect=v1&encoding=json&message=…`, percent-encoded or in base64 of URLs. */
function messageOf(query: string, maxBytes: number): Uint8Array {
  const parameters = new URLSearchParams(query);
  const encoding = parameters.get("encoding") ?? "json";
  if (encoding !== "json")
    throw new Refusal("invalid_argument", "the encoding of the message must be json", 415);
  const version = parameters.get("connect");
  if (version !== null && version !== "v1")
    throw new Refusal("invalid_argument", 'the parameter connect is not "v1"');
  if ((parameters.get("compression") ?? "identity") !== "identity")
    throw new Refusal("unimplemented", "the compression of the message must be identity");
  const text = parameters.get("message") ?? "";
  const bytes = parameters.get("base64") === "1" ? fromBase64(text) : new TextEncoder().encode(text);
  if (bytes === undefined) throw new Refusal("invalid_argument", "the message is not base64");
  if (bytes.byteLength > maxBytes)
    throw new Refusal("resource_exhausted", `the message has more than ${maxBytes} bytes`, 413);
  return bytes;
}

/** The input of a method. @throws Refusal that says what of the message does not fit. */
function inputOf({ input }: HttpMethod, message: Uint8Array, maxDepth: number): unknown {
  try {
    // A method without input takes no message, and the empty one that clients with Protobuf send.
    if (message.byteLength === 0 && input === undefined) return undefined;
    const json = parseJson(message, maxDepth);
    if (input !== undefined) return input.read(json);
    if (json === null || (typeof json === "object" && Object.keys(json).length === 0)) return undefined;
    throw new Refusal("invalid_argument", "the method takes no input, so the message must be {}");
  } catch (error) {
    if (error instanceof JsonTextError)
      throw new Refusal("invalid_argument", `the message is not valid JSON: ${error.message}`);
    if (error instanceof JsonValueError) throw new Refusal("invalid_argument", error.message);
    if (error instanceof TooLong) throw new Refusal("invalid_argument", "the message takes too long to read");
    throw error;
  }
}
