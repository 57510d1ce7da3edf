import { AsyncLocalStorage } from "node:async_hooks";
import { Inject, Optional, Scope, type Type } from "@nestjs/common";
import { ApplicationConfig, HttpAdapterHost, ModuleRef } from "@nestjs/core";
import type { CallContext } from "cinnabar/standard";
import { isObservable, Observable } from "rxjs";
import { CinnabarContext } from "./context.ts";

/*
 * Nest's pipeline makes about ten promises for each call, also where nothing is in it. Of a controller without guards,
 * interceptors and pipes the first call goes through the pipeline, and shows the instance. Later calls go to the
 * instance, and only an error or an Observable goes through the pipeline: exception filters see it.
 */

type Method = (this: object, input: unknown, call: CallContext) => unknown;

/** What a method gave that was called already. */
export type Outcome = { readonly value: unknown } | { readonly error: unknown };

/** How calls reach one method of a contract. */
export class Route {
  /** The method of the one instance, once it is known that nothing surrounds it. */
  direct: ((input: unknown, call: CallContext) => unknown) | undefined;
  #isSettled = false;

  /** Called in the pipeline, with what Nest calls. */
  learn(instance: object, name: string, called: unknown, method: Method): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    // Somebody may have wrapped the method of the class or of the instance.
    if ((instance as Record<string, unknown>)[name] === called && isBare(instance, called as object))
      this.direct = method.bind(instance);
  }
}

/** The context of a call that the pipeline brings to a method of a contract. */
export class RoutedContext extends CinnabarContext {
  readonly route: Route;
  readonly outcome: Outcome | undefined;

  constructor(call: CallContext, path: string, route: Route, outcome?: Outcome) {
    super([call, path]);
    this.route = route;
    this.outcome = outcome;
  }
}

/**
 * The context of the call whose pipeline runs, where pipes must not see it. Undefined in the methods of controllers.
 * Before Node 24 every promise of a process costs more once it is entered.
 */
export const routedContexts = new AsyncLocalStorage<RoutedContext | undefined>();

/** Runs a pipeline that finds the context. With hooks of Nest 12 it begins when its result is subscribed to. */
export function throughPipeline(context: RoutedContext, run: () => Promise<unknown>): Promise<unknown> {
  return routedContexts.run(context, () => run().then((result) => subscribedIn(context, result)));
}

/** What a method gave. What it does when it is subscribed to is not in the pipeline: it may call methods, too. */
export function outsideNest(result: unknown): unknown {
  return result instanceof Promise ? result.then(outsideNest) : subscribedIn(undefined, result);
}

function subscribedIn(context: RoutedContext | undefined, result: unknown): unknown {
  if (!isObservable(result)) return result;
  return new Observable((subscriber) => routedContexts.run(context, () => result.subscribe(subscriber)));
}

/** The modules of instances, which keep no property of it. */
const modules = new WeakMap<object, ModuleRef>();

/** A class that Nest has made instances of in a module. */
interface Use {
  readonly type: object;
  /** Weak: it leads to the whole application. */
  readonly module: WeakRef<ModuleRef>;
}

/** Where a class and its subclasses are used. */
const usesOf = new WeakMap<object, readonly Use[]>();
const moduleKey = Symbol("cinnabar-nest: module");

/** Lets Nest give the module of each instance of a class. */
export function injectModule(prototype: object): void {
  if (moduleKey in prototype) return;
  Object.defineProperty(prototype, moduleKey, {
    configurable: true,
    set(this: object, module: ModuleRef) {
      modules.set(this, module);
      noteUse(this.constructor, module);
    },
  });
  Optional()(prototype, moduleKey);
  Inject(ModuleRef)(prototype, moduleKey);
}

/** Keys of metadata that Nest keeps at classes and methods, as its constants name them. */
const pipesKey = "__pipes__";
const enhancers = ["__guards__", "__interceptors__", pipesKey];

function noteUse(type: object, module: ModuleRef): void {
  if (usesOf.get(type)?.some((use) => use.type === type && use.module.deref() === module)) return;
  const use = { type, module: new WeakRef(module) };
  for (let each = type as Type; each.prototype !== undefined; each = Object.getPrototypeOf(each)) {
    const others = usesOf.get(each) ?? [];
    usesOf.set(each, [...others.filter((other) => other.module.deref() !== undefined), use]);
  }
}

/** Whether an application has pipes for a method of this class. False before there is an instance. */
export function mayHavePipes(target: object, method: object): boolean {
  if (Reflect.hasMetadata(pipesKey, target) || Reflect.hasMetadata(pipesKey, method)) return true;
  return (usesOf.get(target) ?? []).some(({ type, module }) => {
    const find = module.deref();
    if (find === undefined) return false;
    // A microservice of an application that serves HTTP, too, may have a configuration of its own.
    if (Reflect.hasMetadata(pipesKey, type) || find.get(HttpAdapterHost, { strict: false }).httpAdapter)
      return true;
    const config = find.get(ApplicationConfig, { strict: false });
    return config.getGlobalPipes().length > 0 || config.getGlobalRequestPipes().length > 0;
  });
}

/** Whether Nest has nothing but exception filters around the methods of this instance. False if that is unknown. */
function isBare(instance: object, method: object): boolean {
  const module = modules.get(instance);
  if (module === undefined) return false;
  const type = instance.constructor as new () => object;
  if (enhancers.some((key) => Reflect.hasMetadata(key, type) || Reflect.hasMetadata(key, method)))
    return false;
  try {
    const find = <T>(token: new (...args: never[]) => T): T => module.get(token, { strict: false });
    // In an application that serves HTTP, too, a microservice may have a configuration of its own.
    if (find(HttpAdapterHost).httpAdapter) return false;
    if (module.introspect(type).scope !== Scope.DEFAULT) return false;
    const config = find(ApplicationConfig);
    const all = [
      ...[config.getGlobalGuards(), config.getGlobalRequestGuards()],
      ...[config.getGlobalInterceptors(), config.getGlobalRequestInterceptors()],
      ...[config.getGlobalPipes(), config.getGlobalRequestPipes()],
      // Nest 11 has no such hooks.
      config.getGlobalPreRequestHooks?.() ?? [],
    ];
    return all.every(({ length }) => length === 0);
  } catch {
    // Nest knows the class by another token.
    return false;
  }
}
