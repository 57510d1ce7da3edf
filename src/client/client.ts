/*
 * The room `client`: makes calls of the methods of a contract: validation, deadline, retries, middleware, streams.
 * Promises: a call settles once, by its deadline, with a value or an `RpcError`. A call that may have run is sent
 * again only if that is safe.
 * Takes: the state of a call from `call`, requests and items from `session`, schemas from `contract`.
 */

import { remoteError } from "../base/errors/rpc-error.ts";
import { RetryBudget } from "../base/flow/retry-budget.ts";
import { wantCurrentCall } from "../call/current-call.ts";
import type { Middleware } from "../call/middleware.ts";
import type { CallResult, ClientOf } from "../contract/infer.ts";
import type { AnyMethod } from "../contract/method.ts";
import { formatIssues, validate } from "../contract/schema.ts";
import { type AnyService, isService, methodPath, servedName } from "../contract/service.ts";
import { builtinMethods } from "../wire/builtin.ts";
import { Metadata } from "../wire/metadata/metadata.ts";
import {
  assertCallOptions,
  assertClientOptions,
  assertOneWayOptions,
  type CallOptions,
  type ClientCallOptions,
  type ClientOptions,
  defaultTimeoutMs,
  type OneWayCallOptions,
} from "./call-options.ts";
import { ClientCall } from "./client-call.ts";
import { ClientMethod, type ClientTerms } from "./client-method.ts";
import { resultOf, withOptions } from "./method-function.ts";
import { callThrough, chainOf } from "./middleware.ts";
import { RetriedCall } from "./retried-call.ts";
import type { RetryPolicy } from "./retry-policy.ts";
import type { SessionSource } from "./session-source.ts";
import { streamFunction } from "./stream-client.ts";

/**
 * A client of a service, made by `peer.client`. `client.method(input, options)` rejects with an `RpcError`.
 * `client.method.result(input, options)` resolves to the value or the error. A method without input takes its options
 * first. A stream whose items the caller sends takes `input`, `items` and `options`.
 *
 * @example
 * const client: Client<typeof Files> = peer.client(Files);
 * const { bytes: size } = await client.stat({ path });
 * const result = await client.stat.result({ path });
 * console.log(result.ok ? result.value.bytes : result.error.code, size);
 */
export type Client<S extends AnyService> = ClientOf<S, ClientCallOptions>;

/**
 * Makes a client: a frozen plain object with one function for each method. It holds no resources and needs no closing.
 */
export function createClient<S extends AnyService>(
  source: SessionSource,
  service: S,
  options: ClientOptions = {},
): Client<S> {
  if (!isService(service)) throw new TypeError("client: the first argument must be made by service()");
  assertClientOptions(options);
  const { retry, inherit = true, whenFull = "wait", priority, key } = options;
  const metadata = options.metadata === undefined ? undefined : new Metadata(options.metadata);
  const middleware = [...source.engine.clientMiddleware, ...(options.middleware ?? [])];
  if (inherit) wantCurrentCall();
  const budget = new RetryBudget(source.engine.clock, retry === false ? undefined : retry?.budget);
  const own = { inherit, whenFull, priority, key, metadata };
  const terms: ClientTerms = { source, attempts: options, budget, ...own };
  const client: Record<string, unknown> = Object.create(null);
  const called = { name: servedName(service, options.instance) };
  for (const [name, method] of Object.entries(service.methods)) {
    const { number, isOfCall } = builtinMethods[methodPath(called, name)] ?? {};
    if (number !== undefined && isOfCall && source.ask !== undefined) {
      client[name] = requestFunction(source, number, method as AnyMethod);
      continue;
    }
    const timeoutMs = options.timeoutMs ?? method.timeoutMs ?? defaultTimeoutMs;
    client[name] = clientFunction(
      new ClientMethod(terms, called.name, name, methodPath(called, name), method, timeoutMs),
      service,
      middleware,
    );
  }
  return Object.freeze(client) as Client<S>;
}

function make(
  method: ClientMethod,
  input: unknown,
  policy: RetryPolicy | undefined,
  options: CallOptions | undefined,
): Promise<unknown> {
  if (policy === undefined) return ClientCall.make(method, input, options);
  return new RetriedCall(method, input, policy, options).promise;
}

/**
 * Makes a function of a method whose requests belong to another call. Users see only that call: middleware, counts and
 * logs leave its requests out.
 */
function requestFunction(source: SessionSource, number: number, { output }: AnyMethod): unknown {
  const call = async (input: unknown, { timeoutMs = defaultTimeoutMs, signal }: CallOptions = {}) => {
    const answer = await source.ask?.(number, input, { timeoutMs, signal });
    const verdict = validate(output, answer);
    const { issues } = verdict instanceof Promise ? await verdict : verdict;
    if (issues === undefined) return answer;
    const message = `the server's answer does not fit the contract: ${formatIssues("output", issues)}`;
    throw remoteError("internal", message);
  };
  const result = (input: unknown, options?: CallOptions) => resultOf(call(input, options));
  return Object.freeze(Object.assign(call, { result }));
}

function clientFunction(
  method: ClientMethod,
  service: AnyService,
  middleware: readonly Middleware[],
): unknown {
  const { kind } = method.contract;
  if (kind === "unary") return unaryFunction(method, service, middleware);
  if (kind === "oneWay") return oneWayFunction(method, service, middleware);
  return streamFunction(method, kind, service, middleware);
}

function oneWayFunction(
  method: ClientMethod,
  service: AnyService,
  middleware: readonly Middleware[],
): unknown {
  return withOptions(method, (input: unknown, options?: OneWayCallOptions): Promise<unknown> => {
    if (options !== undefined) assertOneWayOptions(options);
    const chain = chainOf(middleware, options);
    if (chain === undefined) return ClientCall.make(method, input, options);
    return callThrough(chain, service, method, input, options, (given, inner) =>
      ClientCall.make(method, given, inner),
    );
  });
}

function unaryFunction(
  method: ClientMethod,
  service: AnyService,
  middleware: readonly Middleware[],
): unknown {
  const call = (input: unknown, options?: CallOptions): Promise<unknown> => {
    let { policy } = method;
    if (options === undefined && policy === undefined && middleware.length === 0)
      return ClientCall.make(method, input, undefined);
    if (options !== undefined) {
      assertCallOptions(options);
      policy = method.policyOf(options);
    }
    const chain = chainOf(middleware, options);
    if (chain === undefined) return make(method, input, policy, options);
    return callThrough(chain, service, method, input, options, (given, inner) =>
      make(method, given, policy, inner),
    );
  };
  const result = (input: unknown, options?: CallOptions): Promise<CallResult<AnyMethod>> =>
    resultOf(call(input, options));
  return Object.freeze(Object.assign(withOptions(method, call), { result: withOptions(method, result) }));
}
