import { MethodMetrics } from "../base/observe/call-metrics.ts";
import type { AnyMethod } from "../contract/method.ts";
import { isService, methodPath, servedName } from "../contract/service.ts";
import type { ServedMethod } from "../transfer/control/control-method.ts";
import { type BuiltinNumber, builtinMethods, builtinServices, firstBuiltin } from "../wire/builtin.ts";
import { greetingLimits, methodKindNumbers, type TableMethod } from "../wire/handshake.ts";
import { Dispatcher, type ServerTerms } from "./dispatcher.ts";
import { type Handler, type Implementation, isImplementation } from "./implement.ts";
import { handleThrough } from "./middleware-call.ts";

/**
 * The dispatchers of an engine's methods. An implementation that is served to several peers has one dispatcher for each
 * method, and so one queue of admission control.
 */
export class Dispatchers {
  readonly #terms: ServerTerms;
  readonly #methods = new WeakMap<Implementation, readonly ServedMethod[]>();
  /** Control methods by their number from `firstBuiltin` on, those of served built-in services included. */
  readonly controls: (ServedMethod | undefined)[] = [];

  constructor(terms: ServerTerms) {
    this.#terms = terms;
  }

  /** The methods of an implementation, in the order of its service's methods. */
  of(implementation: Implementation): readonly ServedMethod[] {
    let methods = this.#methods.get(implementation);
    if (methods === undefined) {
      methods = this.#make(implementation);
      this.#methods.set(implementation, methods);
    }
    return methods;
  }

  #make({
    service,
    instance,
    handlers,
    admission: options,
    middleware = [],
  }: Implementation): ServedMethod[] {
    const { admission, metrics } = this.#terms;
    const served = { name: servedName(service, instance) };
    const queue = admission.queueOf(served.name, options);
    const chain = [...this.#terms.middleware, ...middleware];
    return Object.keys(service.methods).map((name) => {
      const handler = handlers[name] as Handler;
      const run = chain.length === 0 ? handler : handleThrough(chain, service, name, handler);
      const method = service.methods[name] as AnyMethod;
      const metric = metrics.of(methodPath(served, name), "in");
      return new Dispatcher(this.#terms, method, metric, run, queue);
    });
  }

  /**
   * Adds a built-in service to `controls`. No middleware, no admission control and no metrics: its methods are served in
   * any state of the engine.
   */
  addBuiltin({ service, handlers }: Implementation): void {
    for (const [name, method] of Object.entries(service.methods)) {
      const path = methodPath(service, name);
      const metric = new MethodMetrics(path, "in");
      const run = handlers[name] as Handler;
      const { number } = builtinMethods[path] as BuiltinNumber;
      this.controls[number - firstBuiltin] = new Dispatcher(this.#terms, method, metric, run, undefined);
    }
  }
}

/**
 * The services that one engine serves to its peers: the table for peers, and the methods by their numbers in that
 * table. Services can be added at any time and are never removed, so a number never changes.
 */
export class ServedServices {
  readonly services: [string, TableMethod[]][] = [];
  readonly methods: ServedMethod[] = [];
  /** In the order in which they were added. */
  readonly implementations: Implementation[] = [];
  readonly #dispatchers: Dispatchers;
  readonly #takesBuiltins: boolean;

  /** `takesBuiltins`: built-in services may be added, which all peers of the engine can call. Default true. */
  constructor(dispatchers: Dispatchers, takesBuiltins = true) {
    this.#dispatchers = dispatchers;
    this.#takesBuiltins = takesBuiltins;
  }

  /**
   * Adds all of `implementations`. An error adds none of them.
   *
   * @throws TypeError for a value that `implement` has not made, for a service that is served already, and for bounds
   *   of a queue that no request enters. RangeError for more services or methods than the table for peers can hold.
   */
  add(where: string, implementations: readonly Implementation[]): void {
    if (!Array.isArray(implementations))
      throw new TypeError(`${where}: serve must be an array of implementations made by implement()`);
    const seen = new Set(this.implementations.map(({ service, instance }) => servedName(service, instance)));
    let methods = this.methods.length;
    for (const [index, each] of implementations.entries()) {
      if (!isImplementation(each))
        throw new TypeError(`${where}: serve[${index}] must be made by implement()${hintFor(each)}`);
      const name = servedName(each.service, each.instance);
      if (builtinServices.has(name)) this.#assertBuiltin(where, each);
      if (seen.has(name)) throw new TypeError(`${where}: service "${name}" is implemented twice`);
      seen.add(name);
      methods += Object.keys(each.service.methods).length;
    }
    if (seen.size > greetingLimits.maxServices || methods > greetingLimits.maxMethods)
      throw new RangeError(
        `${where}: an engine serves at most ${greetingLimits.maxServices} services and ${greetingLimits.maxMethods} methods`,
      );
    const isBuiltin = ({ service, instance }: Implementation) =>
      builtinServices.has(servedName(service, instance));
    // Options may be refused here, so this comes before the first addition.
    for (const each of implementations) if (!isBuiltin(each)) this.#dispatchers.of(each);
    for (const each of implementations) {
      this.implementations.push(each);
      if (isBuiltin(each)) this.#dispatchers.addBuiltin(each);
      else this.#add(each);
    }
  }

  #assertBuiltin(where: string, { service }: Implementation): void {
    if (!this.#takesBuiltins)
      throw new TypeError(
        `${where}: service "${service.name}" is built in, and Engine.open and engine.serve take it`,
      );
    for (const [name, { kind }] of Object.entries(service.methods))
      if (builtinMethods[methodPath(service, name)]?.kind !== kind)
        throw new TypeError(
          `${where}: the name "${service.name}" is that of a built-in service with other methods`,
        );
  }

  #add(implementation: Implementation): void {
    const { service, instance } = implementation;
    this.services.push([
      servedName(service, instance),
      Object.entries(service.methods).map(([name, method]) => tableMethod(name, method as AnyMethod)),
    ]);
    this.methods.push(...this.#dispatchers.of(implementation));
  }
}

function tableMethod(name: string, { kind }: AnyMethod): TableMethod {
  return kind === "unary" ? name : [name, methodKindNumbers[kind]];
}

/** The hint for a value that was passed instead of an implementation. */
function hintFor(value: unknown): string {
  if (Array.isArray(value)) return "; pass several as engine.serve(a, b), without an array";
  return isService(value) ? `; write implement(service, { … }) for the service "${value.name}"` : "";
}
