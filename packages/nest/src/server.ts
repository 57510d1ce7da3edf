import {
  type BaseRpcContext,
  type CustomTransportStrategy,
  type MessageHandler,
  Server,
} from "@nestjs/microservices";
import {
  type FieldsOf,
  type ImplementOptions,
  integer,
  milliseconds,
  resolveOptions,
} from "cinnabar/options";
import {
  type AnyService,
  type CallContext,
  Engine,
  type EngineOptions,
  type HandlerErrorListener,
  type HandlersOf,
  type Implementation,
  implement,
  RpcError,
} from "cinnabar/standard";
import { isObservable, type Observable } from "rxjs";
import { CinnabarContext } from "./context.ts";
import { type Outcome, Route, RoutedContext, throughPipeline } from "./direct-calls.ts";
import { callerError, handlerFailed, isHidden } from "./failures.ts";
import { NestMessages } from "./messages.ts";
import { only, paceOf, pulled } from "./observables.ts";

/** The transport of `CinnabarServer`: the second argument of `@MessagePattern` keeps a handler to this transport. */
export const cinnabarTransport: symbol = Symbol.for("cinnabar-nest");

/** What the server learns from `@CinnabarService` about a handler: the handler's `extras`. */
export interface MethodExtras {
  readonly cinnabarMethod: {
    readonly contract: AnyService;
    readonly method: string;
    readonly options: ImplementOptions;
    /** Whether the context is no parameter for Nest. */
    readonly isContextHidden: () => boolean;
  };
}

/** Options of `CinnabarServer`: those of `Engine.open`, and how it ends. */
export interface CinnabarServerOptions extends EngineOptions {
  readonly listen: string | readonly string[];
  /** How long calls in flight may go on when the application closes, in milliseconds. Default 10,000. */
  readonly graceMs?: number | undefined;
  /**
   * The most values of a handler's Observable that wait for a slow caller. Beyond it the call fails with
   * `resource_exhausted`. Async generators wait for the caller instead. Default 16,384.
   */
  readonly maxQueuedItems?: number | undefined;
}

const ownFields = {
  graceMs: milliseconds({ fallback: 10_000 }),
  maxQueuedItems: integer(1, 1_000_000, 16_384),
} satisfies FieldsOf<Pick<CinnabarServerOptions, "graceMs" | "maxQueuedItems">>;

type Run = MessageHandler<unknown, BaseRpcContext, unknown>;

/**
 * The transport strategy. It serves the controllers of a contract under the contract's names, so that any client of
 * Cinnabar calls them, and all other patterns for `CinnabarClient`.
 */
export class CinnabarServer extends Server implements CustomTransportStrategy {
  override readonly transportId: symbol = cinnabarTransport;
  readonly #engineOptions: EngineOptions;
  readonly #graceMs: number;
  readonly #maxQueued: number;
  #engine: Engine | undefined;

  /** @throws TypeError or RangeError for bad options. Those of the engine are checked by `listen`. */
  constructor(options: CinnabarServerOptions) {
    super();
    const { graceMs, maxQueuedItems, ...engineOptions } = options;
    const own = resolveOptions("CinnabarServer", { graceMs, maxQueuedItems }, ownFields);
    this.#graceMs = own.graceMs;
    this.#maxQueued = own.maxQueuedItems;
    this.#engineOptions = engineOptions;
  }

  /** A second handler of a method of a contract would replace the first without a word. */
  override addHandler(
    pattern: unknown,
    callback: MessageHandler,
    isEventHandler = false,
    extras: Record<string, unknown> = {},
  ): void {
    const known = this.messageHandlers.get(this.normalizePattern(pattern as string));
    if (known !== undefined && (methodOf(known) ?? extras.cinnabarMethod) !== undefined)
      throw new Error(`two controllers handle "${String(pattern)}"; a method of a contract has one handler`);
    super.addHandler(pattern, callback, isEventHandler, extras);
  }

  /** For Nest: opens the engine and listens. `app.listen()` resolves to the engine's URLs. */
  async listen(callback: (error?: unknown, urls?: readonly string[]) => void): Promise<void> {
    try {
      const { serve = [], ...options } = this.#engineOptions;
      const own = this.#implementations();
      this.#engine = await Engine.open({
        onHandlerError: this.#logFailure,
        ...options,
        serve:
          typeof serve === "function"
            ? async (engine) => [...(await serve(engine)), ...own]
            : [...serve, ...own],
      });
    } catch (error) {
      return callback(error);
    }
    this._status$.next("listening");
    callback(undefined, this.#engine.urls);
  }

  /** Takes no new calls, waits for those in flight for at most `graceMs`, and closes the engine. */
  async close(): Promise<void> {
    const engine = this.#engine;
    if (engine === undefined) return;
    await engine.drain({ graceMs: this.#graceMs });
    await engine.close();
    this._status$.next("closed");
  }

  /** The server has no events: use those of the engine, which `unwrap` gives. */
  on(): never {
    throw new Error("CinnabarServer has no events; unwrap() gives the engine, which has");
  }

  /** The engine, once the application listens. */
  unwrap<T = Engine>(): T {
    if (this.#engine === undefined) throw new Error("CinnabarServer: the application does not listen yet");
    return this.#engine as T;
  }

  readonly #logFailure: HandlerErrorListener = (error, { method }) => {
    this.logger.error(`the handler of ${method} failed`, error instanceof Error ? error.stack : error);
  };

  #implementations(): Implementation[] {
    const handlers = new Map<AnyService, Record<string, unknown>>();
    const optionsOf = new Map<AnyService, ImplementOptions>();
    let hasPatterns = false;
    for (const [pattern, run] of this.messageHandlers) {
      const own = methodOf(run);
      if (own === undefined) {
        hasPatterns = true;
        continue;
      }
      const table = handlers.get(own.contract) ?? {};
      handlers.set(own.contract, table);
      optionsOf.set(own.contract, own.options);
      table[own.method] = this.#handler(own.contract, own.method, run, pattern);
    }
    const all = [...handlers].map(([contract, table]) =>
      implement(contract, table as HandlersOf<AnyService, CallContext>, optionsOf.get(contract)),
    );
    return hasPatterns ? [...all, this.#messages()] : all;
  }

  #handler(contract: AnyService, method: string, handler: Run, path: string) {
    const run = methodOf(handler)?.isContextHidden()
      ? (input: unknown, context: RoutedContext) => throughPipeline(context, () => handler(input, context))
      : handler;
    const kind = contract.methods[method]?.kind;
    const route = new Route();
    if (kind === "serverStream" || kind === "duplexStream")
      return (input: unknown, call: CallContext) =>
        this.#values(run, input, new RoutedContext(call, path, route));
    const answers = kind !== "oneWay" ? path : undefined;
    const fail = (failure: unknown): never => {
      throw this.#failure(failure, path);
    };
    const throughNest = (input: unknown, call: CallContext, outcome?: Outcome) =>
      run(input, new RoutedContext(call, path, route, outcome)).then(
        (result) => (isObservable(result) ? only(result, call.signal, answers).catch(fail) : result),
        fail,
      );
    return (input: unknown, call: CallContext) => {
      if (route.direct === undefined) return throughNest(input, call);
      let result: unknown;
      try {
        result = route.direct(input, call);
      } catch (error) {
        return throughNest(input, call, { error });
      }
      if (typeof result !== "object" || result === null) return result;
      if (result instanceof Promise)
        return result.then(
          (value) => (isObservable(value) ? throughNest(input, call, { value }) : value),
          (error: unknown) => throughNest(input, call, { error }),
        );
      return isObservable(result) || "then" in result ? throughNest(input, call, { value: result }) : result;
    };
  }

  async *#values<C extends CinnabarContext>(
    run: (data: unknown, context: C) => Promise<unknown>,
    data: unknown,
    context: C,
  ): AsyncGenerator<unknown, void> {
    try {
      const result = await run(data, context);
      if (isObservable(result)) {
        const { signal } = context;
        yield* pulled(result as Observable<unknown>, {
          pace: paceOf(context),
          signal,
          maxQueued: this.#maxQueued,
        });
      } else if (isAsyncIterable(result)) yield* result;
      // As with Nest's other transports, a handler that returns nothing answers without a value.
      else if (result !== undefined) yield result;
    } catch (failure) {
      throw this.#failure(failure, context.getPattern());
    }
  }

  /** Messages and events of patterns without a contract. */
  #messages(): Implementation {
    const find = (pattern: string, isEvent: boolean): Run => {
      const run = this.messageHandlers.get(pattern);
      if (run !== undefined && (run.isEventHandler ?? false) === isEvent && methodOf(run) === undefined)
        return run;
      throw new RpcError({
        code: "unimplemented",
        message: `no handler here has this pattern for ${isEvent ? "events" : "messages"}`,
      });
    };
    const values = this.#values.bind(this);
    const failure = this.#failure.bind(this);
    return implement(NestMessages, {
      send: ({ pattern, data }, call) =>
        values(find(pattern, false), data, new CinnabarContext([call, pattern])),
      async emit({ pattern, data }, call) {
        try {
          const result = await find(pattern, true)(data, new CinnabarContext([call, pattern]));
          if (isObservable(result)) await only(result, call.signal);
        } catch (error) {
          throw failure(error, pattern);
        }
      },
    });
  }

  /** What the engine answers. It reports anything but an `RpcError`, and answers `internal` without the text. */
  #failure(failure: unknown, pattern: string): unknown {
    if (!isHidden(failure)) return callerError(failure) ?? failure;
    this.logger.warn(
      `the handler of "${pattern}" failed; Nest has logged the exception, but no HttpException: CinnabarExceptionFilter passes these on`,
    );
    return new RpcError({ code: "internal", message: handlerFailed });
  }
}

function methodOf(run: MessageHandler): MethodExtras["cinnabarMethod"] | undefined {
  return (run.extras as Partial<MethodExtras> | undefined)?.cinnabarMethod;
}

function isAsyncIterable(value: unknown): value is AsyncIterable<unknown> {
  return typeof value === "object" && value !== null && Symbol.asyncIterator in value;
}
