import type { StandardSchemaV1 } from "cinnabar/standard";

/** What is wrong with an application or its configuration, in sentences for the person who starts it. */
export class ApplicationError extends Error {
  override readonly name = "ApplicationError";
}

/** What a component gives when it has started. */
export interface Running<Value> {
  /** What components that need this one receive. */
  readonly value: Value;
  /** Ends work in flight and takes no new work. Called before `stop`. Default: nothing is in flight. */
  drain?(graceMs: number): Promise<unknown> | undefined;
  /** Frees what the component holds. Default: it holds nothing. */
  stop?(): Promise<unknown> | undefined;
}

/** The components that one needs, by their names in the application. Each entry gives the type. */
export type Needs = { readonly [name: string]: { readonly type?: unknown } };

/** The value that a component gives. */
export type ValueOf<C> = C extends { readonly type?: infer Value } ? Exclude<Value, undefined> : never;

/** The values of needed components. */
export type ValuesOf<N extends Needs> = { readonly [K in keyof N]: ValueOf<N[K]> };

/** What `start` receives. */
export interface StartContext<Config, N extends Needs> {
  /** The configuration, as the schema of the component has checked it. */
  readonly config: Config;
  /** The values of the components that this one needs; they have started. */
  readonly needs: ValuesOf<N>;
  /** Fires when the start is given up. */
  readonly signal: AbortSignal;
}

/** A part of an application: it starts after what it needs and stops before it. Made by `component`. */
export interface Component<Value = unknown> {
  /** Never set: it carries the type. */
  readonly type?: Value;
  readonly config?: StandardSchemaV1 | undefined;
  readonly secrets?: readonly string[] | undefined;
  readonly needs?: Needs | undefined;
  start(context: StartContext<never, never>): Promise<Running<Value>> | Running<Value>;
}

/** An application: its name and its components by name. Made by `application`. */
export interface Application {
  readonly name: string;
  readonly components: { readonly [name: string]: Component };
}

/**
 * Makes a component. `config` is the schema of its configuration, by zod or any library of Standard Schema: an object
 * whose fields have names of their own. `secrets` are fields whose values are never shown. `needs` names other components
 * of the application; the entries give their types.
 *
 * @example
 * import { Engine } from "cinnabar";
 * import { component } from "cinnabar-serve";
 * import { z } from "zod";
 *
 * export const server = component({
 *   config: z.object({ listen: z.string().default("tcp://127.0.0.1:7400") }),
 *   async start({ config }) {
 *     const engine = await Engine.open({ listen: config.listen });
 *     return { value: engine, drain: (graceMs) => engine.drain({ graceMs }), stop: () => engine.close() };
 *   },
 * });
 */
export function component<
  Value,
  S extends StandardSchemaV1 = StandardSchemaV1<object, object>,
  N extends Needs = Record<never, never>,
>(parts: {
  readonly config?: S;
  readonly secrets?: readonly (keyof StandardSchemaV1.InferOutput<S> & string)[];
  readonly needs?: N;
  start(context: StartContext<StandardSchemaV1.InferOutput<S>, N>): Promise<Running<Value>> | Running<Value>;
}): Component<Value> {
  return parts as unknown as Component<Value>;
}

const names = /^[a-z][A-Za-z0-9]{0,63}$/;

/**
 * Makes an application of components. Export it as the default of a module, for `cinnabar serve`.
 *
 * @throws ApplicationError for a name that is no identifier in lower camel case.
 */
export function application(name: string, components: { readonly [name: string]: Component }): Application {
  for (const each of [name, ...Object.keys(components)])
    if (!names.test(each))
      throw new ApplicationError(
        `application "${name}": "${each}" is no name; names have up to 64 letters and digits, and begin with a small letter`,
      );
  return { name, components };
}

/** Whether a value is what `application` makes, also by another copy of this package. */
export function isApplication(value: unknown): value is Application {
  if (typeof value !== "object" || value === null) return false;
  const { name, components } = value as Partial<Application>;
  return typeof name === "string" && typeof components === "object" && components !== null;
}

/**
 * The names of the components, each after those that it needs.
 *
 * @throws ApplicationError with the path to a component that is missing, or around a circle.
 */
export function startOrder({ name, components }: Application): string[] {
  const order: string[] = [];
  const path: string[] = [];
  const visit = (each: string): void => {
    if (order.includes(each)) return;
    const shown = () => [...path.slice(Math.max(0, path.indexOf(each))), each].join(" -> ");
    if (path.includes(each)) throw new ApplicationError(`${name}: components need each other: ${shown()}`);
    const found = Object.hasOwn(components, each) ? components[each] : undefined;
    if (found === undefined)
      throw new ApplicationError(`${name}: there is no component "${each}", which is needed: ${shown()}`);
    path.push(each);
    for (const need of Object.keys(found.needs ?? {})) visit(need);
    path.pop();
    order.push(each);
  };
  for (const each of Object.keys(components)) visit(each);
  return order;
}
