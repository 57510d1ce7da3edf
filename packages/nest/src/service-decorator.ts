import "reflect-metadata";
import { Controller } from "@nestjs/common";
import { Ctx, EventPattern, MessagePattern, Payload } from "@nestjs/microservices";
import type { ImplementOptions } from "cinnabar/options";
import type {
  AnyMethod,
  AnyService,
  CallContext,
  CallContextFor,
  HandlerInputOf,
  HandlerItemOf,
  HandlerOutputOf,
  ItemSource,
  StreamContextFor,
} from "cinnabar/standard";
import type { Observable } from "rxjs";
import { injectModule, mayHavePipes, outsideNest, RoutedContext, routedContexts } from "./direct-calls.ts";
import { CinnabarExceptionFilter } from "./exception-filter.ts";
import { isItemSource, observed, paceOf } from "./observables.ts";
import { cinnabarTransport, type MethodExtras } from "./server.ts";

type Answer<T> = T | Observable<T> | Promise<T | Observable<T>>;
type Items<T> = ItemSource<T> | Observable<T> | Promise<ItemSource<T> | Observable<T>>;

/** The method of a controller for each kind of method, by kind. */
export interface ControllerShapes<M extends AnyMethod> {
  readonly unary: (
    input: HandlerInputOf<M>,
    call: CallContextFor<M, CallContext>,
  ) => Answer<HandlerOutputOf<M>>;
  readonly serverStream: (
    input: HandlerInputOf<M>,
    call: CallContextFor<M, CallContext>,
  ) => Items<HandlerOutputOf<M>>;
  readonly clientStream: (
    items: AsyncIterableIterator<HandlerItemOf<M>>,
    call: StreamContextFor<M, CallContext>,
  ) => Answer<HandlerOutputOf<M>>;
  readonly duplexStream: (
    items: AsyncIterableIterator<HandlerItemOf<M>>,
    call: StreamContextFor<M, CallContext>,
  ) => Items<HandlerOutputOf<M>>;
  readonly oneWay: (input: HandlerInputOf<M>, call: CallContextFor<M, CallContext>) => unknown;
}

/** The methods that a controller of a service has: as the handlers of `implement`, or with Observables. */
export type ControllerOf<S extends AnyService> = {
  readonly [K in keyof S["methods"]]: ControllerShapes<S["methods"][K]>[S["methods"][K]["kind"]];
};

/** A class whose instances handle a service. */
export type ControllerClass<S extends AnyService> = new (...args: never[]) => ControllerOf<S>;

/** Keys of metadata that Nest keeps at classes, as its constants name them. */
const filtersKey = "__exceptionFilters__";
const argumentsKey = "__routeArguments__";
const typesKey = "design:paramtypes";
const tokensKey = "self:paramtypes";

/**
 * Makes a class a controller that handles each method of a contract. A method receives the input and the call, as a
 * handler of `implement`, or an Observable may be what it returns. Guards, interceptors, pipes and filters apply;
 * `@Payload(pipe)` and `@Call()` name the two parameters where one of them has decorators.
 *
 * `options` are those of `implement`, without an instance.
 *
 * @throws TypeError, when the class is declared, for a method that is missing, and for a constructor whose parameters
 * have no type at run time, which Nest would inject as undefined.
 */
export function CinnabarService<S extends AnyService>(
  contract: S,
  options: Omit<ImplementOptions, "instance"> = {},
): (target: ControllerClass<S>) => void {
  return (target) => {
    const where = `@CinnabarService("${contract.name}")`;
    assertInjectable(where, target);
    for (const [name, { kind }] of Object.entries(contract.methods)) {
      if (typeof target.prototype[name] !== "function")
        throw new TypeError(`${where}: ${target.name} has no method "${name}"`);
      decorate(target, contract, name, kind, options);
    }
    injectModule(target.prototype);
    Controller()(target);
    // The first of the list is the last that Nest asks: filters of the class come before it.
    const filters: unknown[] = Reflect.getOwnMetadata(filtersKey, target) ?? [];
    Reflect.defineMetadata(filtersKey, [CinnabarExceptionFilter, ...filters], target);
  };
}

type Method = (this: object, ...args: unknown[]) => unknown;
type Parameters = Record<string, { readonly index: number }>;

/** Metadata of parameters that no decorator of the method has made. */
const undeclared = new WeakSet<Parameters>();

function decorate(
  target: ControllerClass<AnyService>,
  contract: AnyService,
  name: string,
  kind: AnyMethod["kind"],
  options: ImplementOptions,
): void {
  const prototype = target.prototype as Record<string, Method>;
  const original = prototype[name] as Method;
  const isStream = kind === "serverStream" || kind === "duplexStream";
  const pattern = `${contract.name}/${name}`;
  const parameters: Parameters | undefined = Reflect.getMetadata(argumentsKey, target, name);
  const isDeclared = parameters !== undefined && !undeclared.has(parameters);
  // The context comes behind the arguments of the method itself.
  const count = isDeclared ? 1 + Math.max(-1, ...Object.values(parameters).map(({ index }) => index)) : 1;
  // Also an inherited method has a function of its own: it may handle another contract in another class.
  const handler: Method = function (...args) {
    const given = args[count];
    const stored = given instanceof RoutedContext ? undefined : routedContexts.getStore();
    const context = given instanceof RoutedContext ? given : stored;
    // The program itself may call the method.
    if (context?.getPattern() !== pattern) return original.apply(this, args);
    const { outcome, route, call } = context;
    if (outcome !== undefined) {
      if ("error" in outcome) throw outcome.error;
      return stored === undefined ? outcome.value : outsideNest(outcome.value);
    }
    if (!isDeclared && !isStream) route.learn(this, name, handler, original);
    const invoke = () =>
      isDeclared ? original.apply(this, args.slice(0, count)) : original.call(this, args[0], call);
    const result = stored === undefined ? invoke() : routedContexts.run(undefined, invoke);
    const answer = isStream ? itemsOf(result, context) : result;
    return stored === undefined ? answer : outsideNest(answer);
  };
  let isContextHidden = false;
  if (!isDeclared) Payload()(prototype, name, 0);
  if (!isDeclared || isStream) {
    const before = Object.keys(Reflect.getMetadata(argumentsKey, target, name));
    Ctx()(prototype, name, count);
    // Pipes of the method, the class and the application see each parameter: one for numbers refuses a context. Which
    // there are is known when Nest reads the parameters.
    const visible = new Proxy<Parameters>(Reflect.getOwnMetadata(argumentsKey, target, name), {
      ownKeys(all) {
        isContextHidden ||= mayHavePipes(target, handler);
        return isContextHidden ? before : Reflect.ownKeys(all);
      },
    });
    Reflect.defineMetadata(argumentsKey, visible, target, name);
    if (!isDeclared) undeclared.add(visible);
  }
  for (const key of Reflect.getOwnMetadataKeys(original))
    Reflect.defineMetadata(key, Reflect.getOwnMetadata(key, original), handler);
  Object.defineProperty(prototype, name, { value: handler, writable: true, configurable: true });
  const extras: MethodExtras = {
    cinnabarMethod: { contract, method: name, options, isContextHidden: () => isContextHidden },
  };
  const mark = (kind === "oneWay" ? EventPattern : MessagePattern) as typeof MessagePattern;
  mark(pattern, cinnabarTransport, { ...extras })(prototype, name, {
    value: handler,
    writable: true,
    configurable: true,
  });
}

/** The items of a stream as an Observable, at the pace of the call. */
async function itemsOf(result: unknown, context: object): Promise<unknown> {
  const items = await result;
  return isItemSource(items) ? observed(items, paceOf(context)) : items;
}

/** Compilers that leave types out, such as those of tsx and Deno, give Nest no type to inject by. */
function assertInjectable(where: string, target: ControllerClass<AnyService>): void {
  if (target.length === 0 || Reflect.hasOwnMetadata(typesKey, target)) return;
  const tokens = (Reflect.getOwnMetadata(tokensKey, target) ?? []) as readonly { readonly index: number }[];
  for (let index = 0; index < target.length; index++)
    if (!tokens.some((token) => token.index === index))
      throw new TypeError(
        `${where}: parameter ${index} of the constructor of ${target.name} has no type at run time; compile with emitDecoratorMetadata, or write @Inject(Token), which tsx and Deno need`,
      );
}
