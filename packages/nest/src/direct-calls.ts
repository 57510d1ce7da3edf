import { Inject, Optional, Scope } from "@nestjs/common";
import { ApplicationConfig, HttpAdapterHost, ModuleRef } from "@nestjs/core";
import type { CallContext } from "cinnabar/standard";
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

/** The modules of instances, which keep no property of it. */
const modules = new WeakMap<object, ModuleRef>();
const moduleKey = Symbol("cinnabar-nest: module");

/** Lets Nest give the module of each instance of a class. */
export function injectModule(prototype: object): void {
  if (moduleKey in prototype) return;
  Object.defineProperty(prototype, moduleKey, {
    configurable: true,
    set(this: object, module: ModuleRef) {
      modules.set(this, module);
    },
  });
  Optional()(prototype, moduleKey);
  Inject(ModuleRef)(prototype, moduleKey);
}

/** Keys of metadata that Nest keeps at classes and methods, as its constants name them. */
const enhancers = ["__guards__", "__interceptors__", "__pipes__"];

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
