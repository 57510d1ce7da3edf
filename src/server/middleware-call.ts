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
  readonly method: string;
  readonly kind: string;
  readonly idempotent: boolean;
  readonly peer: string;
  readonly identity: Identity | undefined;
  readonly isConfidential: boolean;
  input: unknown;
  readonly #call: HandlerCall;

  constructor(
    contract: AnyService,
    name: string,
    { kind, idempotent }: AnyMethod,
    input: unknown,
    call: HandlerCall,
  ) {
    this.contract = contract;
    this.name = name;
    this.method = call.method;
    this.kind = kind;
    this.idempotent = idempotent;
    this.peer = call.peer;
    this.identity = call.identity;
    this.isConfidential = call.isConfidential;
    this.input = input;
    this.#call = call;
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
