import type { AnyService, ClientShapes } from "cinnabar/contract/standard";
import { isVoid } from "../json/form.ts";
import { plain } from "../json/values.ts";
import type { Attempt, HttpCallOptions } from "./attempt.ts";
import { HttpItemStream } from "./item-stream.ts";
import { type HttpClientOptions, RemoteMethod } from "./remote-method.ts";

export type { HttpCallOptions, HttpClientOptions };

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
  const client: Record<string, unknown> = Object.create(null);
  for (const [name, { kind }] of Object.entries(service.methods))
    if (kind !== "clientStream" && kind !== "duplexStream")
      client[name] = functionOf(new RemoteMethod(service, name, options));
  return Object.freeze(client) as HttpClient<S>;
}

/** The client's function of a method. A method without input takes its options first. */
function functionOf(method: RemoteMethod): unknown {
  const { kind, input } = method.contract;
  const call =
    kind === "serverStream"
      ? (value: unknown, options?: HttpCallOptions) => streamOf(method, value, options)
      : (value: unknown, options?: HttpCallOptions) => answerOf(method, value, options);
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

async function answerOf(
  method: RemoteMethod,
  input: unknown,
  options: HttpCallOptions = {},
): Promise<unknown> {
  const attempt = method.attempt(options, 10_000);
  try {
    const response = await send(method, attempt, input, options, "application/json");
    return await method.outputOf(response, options);
  } catch (error) {
    throw attempt.errorOf(error);
  } finally {
    attempt.end();
  }
}

function streamOf(method: RemoteMethod, input: unknown, options: HttpCallOptions = {}): HttpItemStream {
  const { errors } = method;
  const attempt = method.attempt(options);
  const open = async () => {
    const response = await send(method, attempt, input, options, "application/connect+json");
    if (!response.ok) throw await errors.ofAnswer(response.status, await response.text());
    options.onHeaders?.(response.headers);
    return response;
  };
  return new HttpItemStream(attempt, errors, open, (json) => method.output(json), options.onTrailers);
}

async function send(
  method: RemoteMethod,
  attempt: Attempt,
  value: unknown,
  options: HttpCallOptions,
  type: string,
): Promise<Response> {
  await method.errors.check(method.contract.input, value);
  const { credentials, fetch: send = fetch } = method.options;
  const json = JSON.stringify(value === undefined ? {} : plain(value));
  return send(method.url, {
    ...{ method: "POST", headers: await method.headers(attempt, options, type), signal: attempt.signal },
    ...(credentials === undefined ? {} : { credentials }),
    body: type === "application/json" ? json : enveloped(json),
  });
}

/** A message with its length in front, as Connect's streams begin. */
function enveloped(json: string): Uint8Array<ArrayBuffer> {
  const message = new TextEncoder().encode(json);
  const bytes = new Uint8Array(5 + message.byteLength);
  new DataView(bytes.buffer).setUint32(1, message.byteLength);
  bytes.set(message, 5);
  return bytes;
}
