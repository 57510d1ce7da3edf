import type { ContextValues } from "../call/context-values.ts";
import { type Middleware, type MiddlewareCall, runChain } from "../call/middleware.ts";
import type { AnyMethod } from "../contract/method.ts";
import type { AnyService } from "../contract/service.ts";
import type { Identity } from "../security/identity.ts";
import { directionsOf } from "../session/streams/items-of-call.ts";
import type { Metadata } from "../wire/metadata/metadata.ts";
import { type HandlerCall, StreamHandlerCall } from "./call-context.ts";
import type { Handler } from "./implement.ts";

/**
 * A handler inside its middleware. The chain runs after the input has been checked, and before the output is checked.
 */
export function handleThrough(
  chain: readonly Middleware[],
  contract: AnyService,
  name: string,
  handler: Handler,
): Handler {
  const method = contract.methods[name] as AnyMethod;
  const givesItems = directionsOf[method.kind]?.outputs === true;
  return (input, context) => {
    const call = new ServerMiddlewareCall(contract, name, method, input, context);
    return runChain(chain, call, () => handler(call.input, context), givesItems);
  };
}

class ServerMiddlewareCall implements MiddlewareCall {
  readonly side = "server";
  readonly contract: AnyService;
  readonly name: string;
  input: unknown;
  readonly #method: AnyMethod;
  readonly #call: HandlerCall;

  constructor(contract: AnyService, name: string, method: AnyMethod, input: unknown, call: HandlerCall) {
    this.contract = contract;
    this.name = name;
    this.input = input;
    this.#method = method;
    this.#call = call;
  }

  get method(): string {
    return this.#call.method;
  }

  get kind(): string {
    return this.#method.kind;
  }

  get idempotent(): boolean {
    return this.#method.idempotent;
  }

  get peer(): string {
    return this.#call.peer;
  }

  get identity(): Identity | undefined {
    return this.#call.identity;
  }

  get isConfidential(): boolean {
    return this.#call.isConfidential;
  }

  get signal(): AbortSignal {
    return this.#call.signal;
  }

  get timeLeftMs(): number {
    return this.#call.timeLeftMs;
  }

  get opening(): unknown {
    return this.#call instanceof StreamHandlerCall ? this.#call.input : undefined;
  }

  get metadata(): Metadata {
    return this.#call.metadata;
  }

  get headers(): Metadata {
    return this.#call.headers;
  }

  get trailers(): Metadata {
    return this.#call.trailers;
  }

  get nestedMetadata(): Metadata {
    return this.#call.nestedMetadata;
  }

  get context(): ContextValues {
    return this.#call.context;
  }
}
