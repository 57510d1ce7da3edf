import { wantCurrentCall } from "../call/current-call.ts";
import type { CallResult, ClientOf } from "../contract/infer.ts";
import { type AnyService, isService, methodPath } from "../contract/service.ts";
import type { AnyMethod } from "../contract/unary.ts";
import { RpcError } from "../errors/rpc-error.ts";
import {
  assertCallOptions,
  assertClientOptions,
  type CallOptions,
  type ClientOptions,
  defaultTimeoutMs,
} from "./call-options.ts";
import { callOnce } from "./client-call.ts";
import { ClientMethod, type ClientTerms } from "./client-method.ts";
import { RetriedCall } from "./retried-call.ts";
import { RetryBudget } from "./retry-budget.ts";
import type { SessionSource } from "./session-source.ts";

/** A service as its callers have it: `client.method(input, options)`, and `client.method.result(…)` for errors as values. */
export type Client<S extends AnyService> = ClientOf<S, CallOptions>;

/** Makes a client: a frozen plain object with one function a method. It holds nothing and needs no closing. */
export function createClient<S extends AnyService>(
  source: SessionSource,
  service: S,
  options: ClientOptions = {},
): Client<S> {
  if (!isService(service)) throw new TypeError("client: the first argument must be made by service()");
  assertClientOptions(options);
  const { retry, inherit = true, whenFull = "wait", priority } = options;
  if (inherit) wantCurrentCall();
  const budget = new RetryBudget(source.host.clock, retry === false ? undefined : retry?.budget);
  const terms: ClientTerms = { source, attempts: options, budget, inherit, whenFull, priority };
  const client: Record<string, unknown> = Object.create(null);
  for (const [name, method] of Object.entries(service.methods)) {
    const timeoutMs = options.timeoutMs ?? method.timeoutMs ?? defaultTimeoutMs;
    client[name] = unaryFunction(
      new ClientMethod(terms, service.name, name, methodPath(service, name), method, timeoutMs),
    );
  }
  return Object.freeze(client) as Client<S>;
}

function unaryFunction(method: ClientMethod): unknown {
  const call = (input?: unknown, options?: CallOptions): Promise<unknown> => {
    let { policy } = method;
    if (options !== undefined) {
      assertCallOptions(options);
      policy = method.policyOf(options);
    }
    if (policy === undefined) return callOnce(method, input, options);
    return new RetriedCall(method, input, policy, options).promise;
  };
  const result = (input?: unknown, options?: CallOptions): Promise<CallResult<AnyMethod>> =>
    call(input, options).then(
      (value) => ({ ok: true, value }),
      (error: unknown) => {
        if (error instanceof RpcError) return { ok: false, error: error as never };
        throw error;
      },
    );
  return Object.freeze(Object.assign(call, { result }));
}
