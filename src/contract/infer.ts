import type { RpcError } from "../base/errors/rpc-error.ts";
import type { ErrorSchemas } from "./declared-error.ts";
import type { ClientStreamWriter, DuplexStreamWriter, ItemSource, ItemStream } from "./item-stream.ts";
import type { AnyMethod } from "./method.ts";
import type { InferInput, InferOutput, Schema, VoidSchema } from "./schema.ts";
import type { AnyService } from "./service.ts";

/** The input that a client passes. */
export type InputOf<M extends { readonly input: Schema }> = InferInput<M["input"]>;

/** The first argument of a call: the input, or no argument where the method declares no input. */
export type InputArgument<I extends Schema> = I extends VoidSchema ? [] : [input: InferInput<I>];

/** The output that a client receives. */
export type OutputOf<M extends { readonly output: Schema }> = InferOutput<M["output"]>;

/** The input that a handler receives: parsed by the schema. */
export type HandlerInputOf<M extends { readonly input: Schema }> = InferOutput<M["input"]>;

/** The output that a handler returns, before the schema parses it. */
export type HandlerOutputOf<M extends { readonly output: Schema }> = InferInput<M["output"]>;

/** An item that a client sends. */
export type ItemOf<M extends { readonly items: Schema }> = InferInput<M["items"]>;

/** An item that a handler receives: parsed by the schema. */
export type HandlerItemOf<M extends { readonly items: Schema }> = InferOutput<M["items"]>;

/** The declared errors of a method: the data that a client receives, by reason. */
export type ErrorsOf<M extends { readonly errors: ErrorSchemas }> = {
  readonly [R in keyof M["errors"]]: InferOutput<M["errors"][R]>;
};

/** An error that the contract declares, with its data. */
export interface DeclaredRpcError<Reason extends string, Data> extends RpcError {
  readonly reason: Reason;
  readonly data: Data;
}

/** An error that the contract does not declare. It has no reason; `code` gives the kind of failure. */
export interface UndeclaredRpcError extends RpcError {
  readonly reason: undefined;
}

/** The declared errors of a method as a union; `reason` distinguishes them. */
export type DeclaredError<M extends { readonly errors: ErrorSchemas }> = {
  readonly [R in keyof M["errors"] & string]: DeclaredRpcError<R, InferOutput<M["errors"][R]>>;
}[keyof M["errors"] & string];

/** The result of a call: a value, or an error. `error.reason` distinguishes declared errors. */
export type CallResult<M extends { readonly output: Schema; readonly errors: ErrorSchemas }> =
  | { readonly ok: true; readonly value: OutputOf<M> }
  | { readonly ok: false; readonly error: DeclaredError<M> | UndeclaredRpcError };

/**
 * A unary method of a client. Calling it resolves to the output, or rejects with an `RpcError`. `Options` are the call
 * options.
 */
export interface UnaryClient<M extends AnyMethod, Options> {
  // No comment here: without one, editors show that of the method in the contract.
  (...args: [...InputArgument<M["input"]>, options?: Options]): Promise<OutputOf<M>>;
  /** Calls the method. Resolves to the output or the error; never rejects with an `RpcError`. */
  result(...args: [...InputArgument<M["input"]>, options?: Options]): Promise<CallResult<M>>;
}

/**
 * A client stream of a client. Calling it sends the items and resolves to the answer, or rejects with an `RpcError`.
 * `input` opens the stream.
 */
export interface ClientStreamClient<M extends AnyMethod, Options> {
  // No comment here, as in `UnaryClient`.
  (
    ...args: [...InputArgument<M["input"]>, items: ItemSource<ItemOf<M>>, options?: Options]
  ): Promise<OutputOf<M>>;
  /** The same. Resolves to the answer or the error; never rejects with an `RpcError`. */
  result(
    ...args: [...InputArgument<M["input"]>, items: ItemSource<ItemOf<M>>, options?: Options]
  ): Promise<CallResult<M>>;
  /** Opens the stream; its items are sent one by one. */
  open(
    ...args: [...InputArgument<M["input"]>, options?: Options]
  ): ClientStreamWriter<ItemOf<M>, OutputOf<M>>;
}

/** A duplex stream of a client. Calling it sends the items and receives those of the server. `input` opens the stream. */
export interface DuplexStreamClient<M extends AnyMethod, Options> {
  // No comment here, as in `UnaryClient`.
  (
    ...args: [...InputArgument<M["input"]>, items: ItemSource<ItemOf<M>>, options?: Options]
  ): ItemStream<OutputOf<M>>;
  /** Opens the stream; its items are sent one by one. */
  open(
    ...args: [...InputArgument<M["input"]>, options?: Options]
  ): DuplexStreamWriter<ItemOf<M>, OutputOf<M>>;
}

/** The options of each kind of call. */
export interface OptionsByKind {
  readonly call: unknown;
  readonly stream: unknown;
  readonly oneWay: unknown;
}

/** The client's type of each kind of method, by kind. A look-up costs the type checker less than conditional types. */
export interface ClientShapes<M extends AnyMethod, Options extends OptionsByKind> {
  readonly unary: UnaryClient<M, Options["call"]>;
  /**
   * Opens the stream. It may be iterated once; `break` cancels it. Only the iteration throws errors.
   */
  readonly serverStream: (
    ...args: [...InputArgument<M["input"]>, options?: Options["stream"]]
  ) => ItemStream<OutputOf<M>>;
  readonly clientStream: ClientStreamClient<M, Options["stream"]>;
  readonly duplexStream: DuplexStreamClient<M, Options["stream"]>;
  /**
   * Sends the call. Resolves when the request has been handed over to be sent. Rejects with an `RpcError` when it could
   * not be handed over: then it was not executed.
   */
  readonly oneWay: (...args: [...InputArgument<M["input"]>, options?: Options["oneWay"]]) => Promise<void>;
}

/** A client: one function for each method. */
export type ClientOf<S extends AnyService, Options extends OptionsByKind> = {
  readonly [K in keyof S["methods"]]: ClientShapes<S["methods"][K], Options>[S["methods"][K]["kind"]];
};

/** The arguments of `call.fail` beside the reason and the data. */
export interface FailOptions {
  /** One sentence for people. It travels to the caller. Default: the contract's message. */
  readonly message?: string | undefined;
  /** How long the caller should wait before it tries again, in milliseconds. Default: no time is sent. */
  readonly retryAfterMs?: number | undefined;
}

/** The arguments of `call.fail` after the reason: the data, which may be left out when the error has none. */
export type FailData<Data> = undefined extends Data
  ? [data?: Data, options?: FailOptions]
  : [data: Data, options?: FailOptions];

/** The typed `fail` of a handler's call. */
export interface Failing<M extends { readonly errors: ErrorSchemas }> {
  /**
   * Fails the call with a declared error. It throws, so no code after it runs. Only declared reasons compile, each with
   * its own data. Write `return call.fail(…)` so that TypeScript knows that the function ends.
   */
  fail<R extends keyof M["errors"] & string>(reason: R, ...data: FailData<InferInput<M["errors"][R]>>): never;
}

/** The second argument of a handler. `Context` is the server's call context. */
export type CallContextFor<M extends { readonly errors: ErrorSchemas }, Context> = Context & Failing<M>;

/** The call of a stream with items from the client. */
export type StreamContextFor<M extends AnyMethod, Context> = CallContextFor<M, Context> & {
  /** The input that opened the stream. */
  readonly input: HandlerInputOf<M>;
};

/** The handler of each kind of method, by kind. */
export interface HandlerShapes<M extends AnyMethod, Context> {
  readonly unary: (
    input: HandlerInputOf<M>,
    call: CallContextFor<M, Context>,
  ) => HandlerOutputOf<M> | Promise<HandlerOutputOf<M>>;
  /** An async generator, or a function that returns an iterable. */
  readonly serverStream: (
    input: HandlerInputOf<M>,
    call: CallContextFor<M, Context>,
  ) => ItemSource<HandlerOutputOf<M>> | Promise<ItemSource<HandlerOutputOf<M>>>;
  /** It may return before it has read all items. */
  readonly clientStream: (
    items: AsyncIterableIterator<HandlerItemOf<M>>,
    call: StreamContextFor<M, Context>,
  ) => HandlerOutputOf<M> | Promise<HandlerOutputOf<M>>;
  /** The stream ends when the iteration of the returned value ends. */
  readonly duplexStream: (
    items: AsyncIterableIterator<HandlerItemOf<M>>,
    call: StreamContextFor<M, Context>,
  ) => ItemSource<HandlerOutputOf<M>> | Promise<ItemSource<HandlerOutputOf<M>>>;
  /** The returned value is ignored. */
  readonly oneWay: (input: HandlerInputOf<M>, call: CallContextFor<M, Context>) => unknown;
}

/** The handlers of a service: one function for each method. `Context` is the server's call context. */
export type HandlersOf<S extends AnyService, Context> = {
  readonly [K in keyof S["methods"]]: HandlerShapes<S["methods"][K], Context>[S["methods"][K]["kind"]];
};
