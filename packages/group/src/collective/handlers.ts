import { callback, type ImplementOptions, resolveOptions } from "cinnabar/options";
import {
  type AnyMethod,
  type AnyService,
  type CallContext,
  type Failing,
  type HandlerShapes,
  type Implementation,
  type InferInput,
  type InferOutput,
  implement,
} from "cinnabar/standard";
import type { Envelope, Reply } from "./envelope.ts";
import {
  type AnyCollective,
  type CollectiveMethod,
  type ErrorSchemasOf,
  type InputSchemaOf,
  isCollective,
  type OutputSchemaOf,
  type WithBulk,
} from "./method.ts";

/** A value that is there already, or a promise of it. */
export type MaybePromise<T> = T | PromiseLike<T>;

/** Whether `value` comes later. */
export function isLater<T>(value: MaybePromise<T>): value is PromiseLike<T> {
  return (
    typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function"
  );
}

/**
 * Calls `next` with a value, at once if the value is there. So a call with a synchronous handler and synchronous
 * schemas makes no promise at a member. An error of `next` is thrown or rejects, accordingly.
 */
export function whenThere<T, R>(
  value: MaybePromise<T>,
  next: (value: T) => MaybePromise<R>,
): MaybePromise<R> {
  return isLater(value) ? value.then(next) : next(value);
}

/** The second argument of a collective's handler. */
export interface CollectiveCall {
  /** The name of the group. */
  readonly group: string;
  /** The rank of this process. */
  readonly rank: number;
  /** The caller's rank; undefined for an observer. */
  readonly root: number | undefined;
  /** The version of the view that the call was made in. */
  readonly viewVersion: number;
  /** The call's id, the same at all members. */
  readonly id: string;
  /**
   * Fires when the time is up or the output is not needed any more. Its reason is an `RpcError`. Pass it on to calls
   * that the handler makes: they do not inherit it.
   */
  readonly signal: AbortSignal;
  /** Milliseconds until the output comes too late. */
  readonly timeLeftMs: number;
}

/** The call of a collective with a region, as its handler sees it. */
export interface BulkCollectiveCall extends CollectiveCall {
  /**
   * The caller's bytes: a copy in memory of the pool, or at the caller itself the memory of its region. Do not change
   * them, since members below copy them from here. Do not keep them: the memory is used again when the handler has
   * ended.
   */
  readonly bulk: Uint8Array;
}

/** Executes a collective at one member: once a call, also where the call arrives twice because the tree was repaired. */
export type CollectiveHandler<M> = (
  input: InputOfHandler<M>,
  call: WithBulk<M, BulkCollectiveCall, CollectiveCall> & FailingOf<M>,
) => OutputOfHandler<M> | Promise<OutputOfHandler<M>>;

/** `call.fail` with the errors that the contract declares. */
type FailingOf<M> = Failing<{ readonly errors: ErrorSchemasOf<M> }>;
type InputOfHandler<M> = InferOutput<InputSchemaOf<M>>;
type OutputOfHandler<M> = InferInput<OutputSchemaOf<M>>;

/** A handler with what is to happen around it. */
export interface CollectiveHooks<M> {
  /** Runs before the call is sent on to the subtree below. When it throws, neither this member nor that runs. */
  readonly before?: (input: InputOfHandler<M>, call: CollectiveCall & FailingOf<M>) => unknown;
  readonly handle: CollectiveHandler<M>;
  /** Runs after this member has answered for its subtree. What it throws is reported as a handler's error. */
  readonly after?: (input: InputOfHandler<M>, call: CollectiveCall) => unknown;
}

/** The handlers of a service: of collectives and of methods of any other kind. */
export type GroupHandlersOf<S extends AnyService> = {
  readonly [K in keyof S["methods"]]: S["methods"][K] extends AnyCollective
    ? CollectiveHandler<S["methods"][K]> | CollectiveHooks<S["methods"][K]>
    : HandlerShapes<S["methods"][K], CallContext>[S["methods"][K]["kind"]];
};

/** Any handler of a collective, without its types. `bulk` is there where the collective has it, for `handle`. */
export type CollectiveHook = (
  input: unknown,
  call: CollectiveCall & { readonly bulk?: Uint8Array; fail(reason: string, data?: unknown): never },
) => unknown;

/** A collective's handlers without their types. */
export interface ServedCollective {
  /** `service/method`. */
  readonly path: string;
  readonly name: string;
  readonly service: AnyService;
  readonly method: CollectiveMethod;
  readonly before: CollectiveHook | undefined;
  readonly handle: CollectiveHook;
  readonly after: CollectiveHook | undefined;
  /** Receives errors that are no `RpcError`. */
  readonly onHandlerError: HandlerErrorListener;
}

/** Where an engine's collectives of one group go. */
export interface CollectiveHost {
  /** `offers`: how much of its region the sender has, for a collective with one. */
  serve(
    served: ServedCollective,
    envelope: Envelope,
    call: CallContext,
    offers: AsyncIterable<number> | undefined,
  ): MaybePromise<Reply>;
}

/** Called with errors of a collective's handler that are no `RpcError`. */
export type HandlerErrorListener = (error: unknown, call: { readonly method: string }) => void;

/** The options of `implementCollectives`. */
export interface ImplementCollectivesOptions extends ImplementOptions {
  /** Called with errors of handlers that are no `RpcError`. Default: prints them with `console.error`. */
  readonly onHandlerError?: HandlerErrorListener | undefined;
}

const fields = { onHandlerError: callback<HandlerErrorListener>(printHandlerError) };

/** A service with its handlers, for `joinGroup({ serve })`. */
export interface GroupImplementation extends Implementation {
  /** @internal The collectives by name. */
  readonly collectives: ReadonlyMap<string, ServedCollective>;
  /** @internal What serves the calls of each group, by the name of the group. */
  readonly hosts: Map<string, CollectiveHost>;
}

/**
 * Implements a service with collectives. Pass the result to `joinGroup({ serve })`. One implementation can serve several
 * groups.
 *
 * @throws TypeError as `implement`, and for a collective whose handler is neither a function nor an object with `handle`
 *
 * @example
 * const store = implementCollectives(Store, {
 *   read: ({ key }) => ({ value: values.get(key) ?? "" }),
 *   usage: ({ pool }) => ({ bytes: pools.get(pool)?.bytes ?? 0, members: 1 }),
 * });
 * const group = await joinGroup("store", { engine, authority, serve: [store] });
 */
export function implementCollectives<S extends AnyService>(
  service: S,
  handlers: GroupHandlersOf<S>,
  options: ImplementCollectivesOptions = {},
): GroupImplementation {
  // `implement` checks the other options.
  const { onHandlerError: _, ...rest } = options;
  const { onHandlerError } = resolveOptions(
    `implementCollectives "${service.name}"`,
    { onHandlerError: options.onHandlerError },
    fields,
  );
  const hosts = new Map<string, CollectiveHost>();
  const collectives = new Map<string, ServedCollective>();
  const all: Record<string, unknown> = {};
  for (const [name, handler] of Object.entries(handlers as Record<string, unknown>)) {
    const method = (service.methods as Record<string, AnyMethod>)[name];
    if (method === undefined || !isCollective(method)) {
      all[name] = typeof handler === "function" ? handler.bind(handlers) : handler;
      continue;
    }
    const hooks = hooksOf(service.name, name, handler, handlers);
    const served = { ...hooks, path: `${service.name}/${name}`, name, service, method, onHandlerError };
    collectives.set(name, served);
    const serve = (envelope: Envelope, call: CallContext, offers?: AsyncIterable<number>) =>
      hosts.get(envelope.group)?.serve(served, envelope, call, offers) ?? notJoined(envelope.group);
    all[name] =
      method.collective.region === undefined
        ? serve
        : (offers: AsyncIterable<number>, call: CallContext & { readonly input: Envelope }) =>
            serve(call.input, call, offers);
  }
  const implementation = implement(service, all as Parameters<typeof implement<S>>[1], rest);
  return Object.freeze({ ...implementation, collectives, hosts });
}

function hooksOf(
  service: string,
  name: string,
  handler: unknown,
  owner: object,
): Pick<ServedCollective, "before" | "handle" | "after"> {
  const hooks = typeof handler === "function" ? { handle: handler.bind(owner) } : handler;
  const { before, handle, after } = (hooks ?? {}) as Partial<ServedCollective>;
  const isHook = (hook: unknown) => hook === undefined || typeof hook === "function";
  if (typeof handle !== "function" || !isHook(before) || !isHook(after))
    throw new TypeError(
      `implementCollectives "${service}": the handler of ${name} is a function, or an object of before, handle and after`,
    );
  return { before: before?.bind(hooks), handle: handle.bind(hooks), after: after?.bind(hooks) };
}

function notJoined(group: string): Reply {
  return refusal({
    // Another try finds it open: the process is there.
    code: "failed_precondition",
    message: `this process has not joined the group "${group.slice(0, 128)}"`,
    retryable: true,
  });
}

/** The reply of a node that takes no part in a call. */
export function refusal(why: NonNullable<Reply["refusal"]>): Reply {
  return { refusal: why, value: undefined, ok: [], failed: [], repaired: [], elapsedMs: 0 };
}

function printHandlerError(error: unknown, { method }: { readonly method: string }): void {
  console.error(`cinnabar-group: the handler of ${method} failed:`, error);
}
