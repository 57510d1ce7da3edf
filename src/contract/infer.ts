import type { RpcError } from "../errors/rpc-error.ts";
import type { InferInput, InferOutput, Schema } from "./schema.ts";
import type { AnyService } from "./service.ts";
import type { AnyMethod, ErrorSchemas } from "./unary.ts";

/** What a client passes: what the input's schema accepts. */
export type InputOf<M extends { readonly input: Schema }> = InferInput<M["input"]>;

/** What a client receives: what the output's schema gives. */
export type OutputOf<M extends { readonly output: Schema }> = InferOutput<M["output"]>;

/** What a handler receives: what the input's schema gives. */
export type HandlerInputOf<M extends { readonly input: Schema }> = InferOutput<M["input"]>;

/** What a handler returns: what the output's schema accepts. */
export type HandlerOutputOf<M extends { readonly output: Schema }> = InferInput<M["output"]>;

type WithErrors = { readonly errors: ErrorSchemas };

/** The declared reasons of a method, each with the data a client receives. */
export type ErrorsOf<M extends WithErrors> = {
  readonly [R in keyof M["errors"]]: InferOutput<M["errors"][R]>;
};

/** An error the contract declares, with its data. */
export interface DeclaredRpcError<Reason extends string, Data> extends RpcError {
  readonly reason: Reason;
  readonly data: Data;
}

/** An error the contract does not declare: it has no reason, `code` says what happened. */
export interface UndeclaredRpcError extends RpcError {
  readonly reason: undefined;
}

/** The errors a method declares, as a union that `reason` tells apart. */
export type DeclaredError<M extends WithErrors> = {
  readonly [R in keyof M["errors"] & string]: DeclaredRpcError<R, InferOutput<M["errors"][R]>>;
}[keyof M["errors"] & string];

/** How a call ended: with its value, or with an error that `error.reason` tells apart. */
export type CallResult<M extends { readonly output: Schema } & WithErrors> =
  | { readonly ok: true; readonly value: OutputOf<M> }
  | { readonly ok: false; readonly error: DeclaredError<M> | UndeclaredRpcError };

/** A unary method as a client has it. `Options` are the client layer's call options. */
export interface UnaryClient<M extends AnyMethod, Options> {
  /** Calls; resolves to the output, or rejects with an `RpcError`. */
  (input: InputOf<M>, options?: Options): Promise<OutputOf<M>>;
  /** Calls; resolves to the output or the error, and never rejects with an `RpcError`. */
  result(input: InputOf<M>, options?: Options): Promise<CallResult<M>>;
}

/** A client's shape of each kind of method, found by the kind: a lookup costs the checker less than conditionals. */
export interface ClientShapes<M extends AnyMethod, Options> {
  readonly unary: UnaryClient<M, Options>;
}

/** A service as a client has it: one callable a method. `Options` are the client layer's call options. */
export type ClientOf<S extends AnyService, Options> = {
  readonly [K in keyof S["methods"]]: ClientShapes<S["methods"][K], Options>[S["methods"][K]["kind"]];
};

/** What follows the reason in `call.fail`: the data, or nothing where the declared error has none. */
type FailData<Data> = undefined extends Data ? [data?: Data] : [data: Data];

/** How a handler fails with an error its contract declares. */
export interface Failing<M extends WithErrors> {
  /**
   * Ends the call with a declared error: throws it. Only declared reasons compile, each with its own data. Write
   * `return call.fail(…)` to let TypeScript know that nothing comes after.
   */
  fail<R extends keyof M["errors"] & string>(reason: R, ...data: FailData<InferInput<M["errors"][R]>>): never;
}

/** What a handler of `M` gets as its second argument. `Context` is the server layer's call context. */
export type CallContextFor<M extends WithErrors, Context> = Context & Failing<M>;

/** A unary method as a server implements it. */
export type UnaryHandler<M extends AnyMethod, Context> = (
  input: HandlerInputOf<M>,
  call: CallContextFor<M, Context>,
) => HandlerOutputOf<M> | Promise<HandlerOutputOf<M>>;

/** A server's shape of each kind of method, found by the kind. */
export interface HandlerShapes<M extends AnyMethod, Context> {
  readonly unary: UnaryHandler<M, Context>;
}

/** A service as a server implements it: one function a method. `Context` is the server layer's call context. */
export type HandlersOf<S extends AnyService, Context> = {
  readonly [K in keyof S["methods"]]: HandlerShapes<S["methods"][K], Context>[S["methods"][K]["kind"]];
};
