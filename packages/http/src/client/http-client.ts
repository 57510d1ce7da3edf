import type { AnyMethod, AnyService, ClientShapes } from "cinnabar/contract/standard";
import { isVoid, JsonForm } from "../json/form.ts";
import { plain } from "../json/values.ts";
import { Attempt, type HttpCallOptions } from "./attempt.ts";
import { CallErrors, rpcError } from "./call-errors.ts";
import { HttpItemStream } from "./item-stream.ts";

export type { HttpCallOptions };

/** Options of `httpClient`. They apply to every call that does not set its own. */
export interface HttpClientOptions {
  /** The server, with the prefix of its handler: `https://api.example.com`, or `/api` on the page's own server. */
  readonly url: string;
  /** The instance of the service. Default: the implementation without a name. */
  readonly instance?: string | undefined;
  /** The deadline of a call, in milliseconds. Default: the method's, or 10,000. Streams have none by default. */
  readonly timeoutMs?: number | undefined;
  /** Headers of every call, or a function that is asked for each: for a token that is renewed. Default: none. */
  readonly metadata?:
    | Readonly<Record<string, string>>
    | (() => Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>>)
    | undefined;
  /** Whether cookies are sent: `fetch` has the values. Default: to the page's own server. */
  readonly credentials?: "omit" | "same-origin" | "include" | undefined;
  /** Takes the place of the global `fetch`, for tests. */
  readonly fetch?: typeof fetch | undefined;
}

/** The options of each kind of call. */
interface HttpOptionsByKind {
  readonly call: HttpCallOptions;
  readonly stream: HttpCallOptions;
  readonly oneWay: HttpCallOptions;
}

/** The kinds of methods that HTTP carries. */
type Reachable = "unary" | "oneWay" | "serverStream";

/**
 * A client of a service over HTTP: a function for each method, with the types of `peer.client`. Client streams and duplex
 * streams have none.
 */
export type HttpClient<S extends AnyService> = {
  readonly [K in keyof S["methods"] as S["methods"][K]["kind"] extends Reachable ? K : never]: ClientShapes<
    S["methods"][K],
    HttpOptionsByKind
  >[S["methods"][K]["kind"]];
};

/**
 * Makes a client of a service for browsers, from the contract that the server has: no generated code. Calls reject with
 * `RpcError`, and `isError` narrows declared errors. Streams are for `for await`.
 *
 * @example
 * const greeter = httpClient(Greeter, { url: "/api" });
 * const { text } = await greeter.greet({ name: "Ada" }, { timeoutMs: 2_000, signal });
 */
export function httpClient<S extends AnyService>(service: S, options: HttpClientOptions): HttpClient<S> {
  const { url, instance } = options;
  const served = instance === undefined ? service.name : `${service.name}#${instance}`;
  const client: Record<string, unknown> = Object.create(null);
  for (const [name, method] of Object.entries(service.methods)) {
    if (method.kind === "clientStream" || method.kind === "duplexStream") continue;
    const path = `${served}/${name}`;
    const place = `${url.replace(/\/$/, "")}/${path.replace("#", "%23")}`;
    client[name] = new HttpMethodClient(method, path, place, options).function();
  }
  return Object.freeze(client) as HttpClient<S>;
}

class HttpMethodClient {
  readonly #method: AnyMethod;
  readonly #options: HttpClientOptions;
  readonly #url: string;
  readonly #errors: CallErrors;
  #output: JsonForm | undefined;

  constructor(method: AnyMethod, path: string, url: string, options: HttpClientOptions) {
    this.#method = method;
    this.#options = options;
    this.#url = url;
    this.#errors = new CallErrors(method, path);
  }

  /** The client's function. A method without input takes its options first. */
  function(): unknown {
    const { kind, input } = this.#method;
    const call =
      kind === "serverStream"
        ? (value: unknown, options?: HttpCallOptions) => this.#stream(value, options)
        : (value: unknown, options?: HttpCallOptions) => this.#call(value, options);
    const one = isVoid(input) ? (options?: HttpCallOptions) => call(undefined, options) : call;
    if (kind !== "unary") return one;
    const result = async (...args: Parameters<typeof call>) => {
      try {
        return { ok: true, value: await one(...(args as [never])) };
      } catch (error) {
        return { ok: false, error };
      }
    };
    return Object.freeze(Object.assign(one, { result }));
  }

  async #call(input: unknown, options: HttpCallOptions = {}): Promise<unknown> {
    const { kind, timeoutMs } = this.#method;
    const limitMs = options.timeoutMs ?? this.#options.timeoutMs ?? timeoutMs ?? 10_000;
    const attempt = new Attempt(this.#errors, options, limitMs);
    try {
      const response = await this.#send(attempt, input, options, "application/json");
      const text = await response.text();
      report(options, response.headers);
      if (!response.ok) throw await this.#errors.ofAnswer(response.status, text);
      return kind === "oneWay" ? undefined : await this.#outputOf(JSON.parse(text));
    } catch (error) {
      throw attempt.errorOf(error);
    } finally {
      attempt.end();
    }
  }

  #stream(input: unknown, options: HttpCallOptions = {}): HttpItemStream {
    const attempt = new Attempt(
      this.#errors,
      options,
      options.timeoutMs ?? this.#options.timeoutMs ?? this.#method.timeoutMs,
    );
    const open = async () => {
      const response = await this.#send(attempt, input, options, "application/connect+json");
      if (!response.ok) throw await this.#errors.ofAnswer(response.status, await response.text());
      options.onHeaders?.(response.headers);
      return response;
    };
    return new HttpItemStream(
      attempt,
      this.#errors,
      open,
      (json) => this.#outputOf(json),
      options.onTrailers,
    );
  }

  async #send(
    attempt: Attempt,
    value: unknown,
    { metadata }: HttpCallOptions,
    type: string,
  ): Promise<Response> {
    await this.#errors.check(this.#method.input, value);
    const { metadata: common, credentials, fetch: send = fetch } = this.#options;
    const json = JSON.stringify(value === undefined ? {} : plain(value));
    const headers = {
      ...(typeof common === "function" ? await common() : common),
      ...metadata,
      "content-type": type,
      ...(attempt.timeoutMs === undefined ? {} : { "connect-timeout-ms": String(attempt.timeoutMs) }),
    };
    attempt.signal.throwIfAborted();
    return send(this.#url, {
      ...{ method: "POST", headers, signal: attempt.signal },
      ...(credentials === undefined ? {} : { credentials }),
      body: type === "application/json" ? json : enveloped(json),
    });
  }

  async #outputOf(json: unknown): Promise<unknown> {
    const { output } = this.#method;
    if (isVoid(output)) return undefined;
    this.#output ??= new JsonForm(output, "output", "output");
    const value = this.#output.read(json);
    const fault = await this.#errors.faultOf(output, value, "output");
    if (fault === undefined) return value;
    throw rpcError("internal", `the server's answer does not fit the contract: ${fault}`, this.#errors.path);
  }
}

/** Headers of a unary answer, and those that are trailers. */
function report({ onHeaders, onTrailers }: HttpCallOptions, all: Headers): void {
  if (onHeaders === undefined && onTrailers === undefined) return;
  const [headers, trailers] = [new Headers(), new Headers()];
  all.forEach((value, name) => {
    if (name.startsWith("trailer-")) trailers.append(name.slice("trailer-".length), value);
    else headers.append(name, value);
  });
  onHeaders?.(headers);
  onTrailers?.(trailers);
}

/** A message with its length in front, as Connect's streams begin. */
function enveloped(json: string): Uint8Array<ArrayBuffer> {
  const message = new TextEncoder().encode(json);
  const bytes = new Uint8Array(5 + message.byteLength);
  new DataView(bytes.buffer).setUint32(1, message.byteLength);
  bytes.set(message, 5);
  return bytes;
}
