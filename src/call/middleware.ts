import type { AsyncResource } from "node:async_hooks";
import { checkedBy, type FieldsOf, fail } from "../base/options/options.ts";
import { contextHere } from "../base/time/detached-context.ts";
import type { Identity } from "../security/identity.ts";
import type { Metadata } from "../wire/metadata/metadata.ts";
import { isIterator, itemsBoundTo } from "./bound-items.ts";
import type { ContextValues } from "./context-values.ts";

/**
 * A call as middleware sees it, the same at the client and at the server, for every kind of method.
 */
export interface MiddlewareCall {
  /** Where this middleware runs. */
  readonly side: "client" | "server";
  /** The contract that the method belongs to. */
  readonly contract: { readonly name: string; readonly methods: Readonly<Record<string, object>> };
  /** Name of the method within its contract. */
  readonly name: string;
  /** The method as `service/method`: "files.v1/stat". */
  readonly method: string;
  /** Kind of the method: "unary", "serverStream", "clientStream", "duplexStream" or "oneWay". */
  readonly kind: string;
  readonly idempotent: boolean;
  /** The peer: at the client the URL or name that was connected to, at the server the caller's address. */
  readonly peer: string;
  /**
   * At the server: the caller's identity, as it was proven when the session opened. Undefined for a peer without a
   * proof. At the client undefined: the call may go to one of several peers.
   */
  readonly identity: Identity | undefined;
  /**
   * Whether only the peer can read what is sent: each session that the call may use is sealed, or does not leave this
   * host. Send secrets, such as tokens, only then.
   */
  readonly isConfidential: boolean;
  /** Fires when the call is cancelled, its deadline passes, or the connection is lost. */
  readonly signal: AbortSignal;
  /** Milliseconds until the deadline; 0 when it has passed. */
  readonly timeLeftMs: number;
  /** The metadata of the request. Middleware of the client may change it before `next()`. */
  readonly metadata: Metadata;
  /**
   * The metadata that the server sends before its first item or its answer. Middleware of the server may change it
   * until it is sent. At the client it is there when `next()` has resolved.
   */
  readonly headers: Metadata;
  /**
   * The metadata that the server sends with its answer or error. Middleware of the server may change it until the call
   * ends. At the client it is there when `next()` has settled; when `next()` resolves to items, after the items have
   * ended.
   */
  readonly trailers: Metadata;
  /**
   * At the server: metadata of the calls that the handler makes, such as a request id. It begins with the trace context
   * of the request. At the client undefined.
   */
  readonly nestedMetadata: Metadata | undefined;
  /** Values for other middleware of this call and, at the server, for its handler. They stay in this process. */
  readonly context: ContextValues;
  /**
   * The input: at the client as the caller gave it, at the server as the schema parsed it. `next()` passes on the
   * assigned value. For a stream whose items the caller sends, it is an iterable of the items.
   */
  input: unknown;
  /** The opening input of a stream whose items the caller sends: `input` has the items. Otherwise undefined. */
  readonly opening: unknown;
}

/**
 * Continues the call: through the following middleware, then to the peer or to the handler. Resolves to the output, or
 * rejects with the error of the call. The output of a stream whose items the server sends is an iterable. It is there
 * when the headers, the first item or the end has come, and a stream that fails before that rejects. `next` may be
 * called several times, or never.
 */
export type Next = () => Promise<unknown>;

/**
 * Code around every call: it may read the call, change its metadata and input, answer it without `next()`, call
 * `next()` again after an error, and change the output.
 *
 * Its return value is the output of the call. An `RpcError` that it throws keeps its code; any other error becomes
 * `internal`.
 *
 * @example
 * const timing: Middleware = async (call, next) => {
 *   const start = performance.now();
 *   try {
 *     return await next();
 *   } finally {
 *     console.log(call.side, call.method, Math.round(performance.now() - start), "ms");
 *   }
 * };
 */
export type Middleware = (call: MiddlewareCall, next: Next) => unknown;

/** Middleware of an engine, for each side. */
export interface EngineMiddleware {
  /** Runs around every call of this engine, before the middleware of the client and of the call. */
  readonly client?: readonly Middleware[] | undefined;
  /** Runs around every handler of this engine, before the middleware of the service. */
  readonly server?: readonly Middleware[] | undefined;
}

/** A list of middleware. */
export const middlewareField = checkedBy((where, name, value): readonly Middleware[] => {
  if (!Array.isArray(value)) return fail(TypeError, where, name, "an array of functions", value);
  for (const [index, each] of value.entries())
    if (typeof each !== "function") fail(TypeError, where, `${name}[${index}]`, "a function", each);
  return value;
});

export const engineMiddlewareFields = {
  client: middlewareField,
  server: middlewareField,
} satisfies FieldsOf<EngineMiddleware>;

/**
 * Runs `chain` around `last`; the first function is the outermost. No function here is async: each would cost every
 * call a promise and three turns of the microtask queue. `givesItems`: the output of each function is an iterable. A
 * generator then runs in the async context in which its middleware or handler was called.
 */
export function runChain(
  chain: readonly Middleware[],
  call: MiddlewareCall,
  last: () => unknown,
  givesItems = false,
): Promise<unknown> {
  const from = (index: number): Promise<unknown> => {
    const middleware = chain[index];
    const here = givesItems ? contextHere() : undefined;
    try {
      const output = middleware === undefined ? last() : middleware(call, () => from(index + 1));
      if (here !== undefined) return Promise.resolve(output).then((items) => generatorBoundTo(here, items));
      return output instanceof Promise ? output : Promise.resolve(output);
    } catch (error) {
      return Promise.reject(error);
    }
  };
  return from(0);
}

/** Other iterables may have methods that middleware calls, for instance a ReadableStream. */
function generatorBoundTo(here: AsyncResource, items: unknown): unknown {
  return isIterator(items) ? itemsBoundTo(here, items) : items;
}
