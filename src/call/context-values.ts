/** A typed key of a call's context, made by `contextKey`. */
export interface ContextKey<T> {
  /** For errors and logs. Two keys with the same name are different keys. */
  readonly name: string;
  /** Never set: it carries the type. */
  readonly type?: T;
}

/**
 * Makes a key for values that middleware hands to the handler, or to other middleware of the same call. Values stay in
 * this process.
 *
 * @example
 * const currentUser = contextKey<{ id: string }>("user");
 * // in middleware: call.context.set(currentUser, await verify(token));
 * // in a handler: const user = call.context.get(currentUser);
 */
export function contextKey<T>(name: string): ContextKey<T> {
  if (typeof name !== "string" || name === "")
    throw new TypeError("contextKey: name must be a non-empty string");
  return Object.freeze({ name });
}

/** The values of one call by their keys. */
export class ContextValues {
  /** Made by the first `set`: most calls have none. */
  #values: Map<ContextKey<unknown>, unknown> | undefined;

  /** The value. Undefined if it was never set. */
  get<T>(key: ContextKey<T>): T | undefined {
    return this.#values?.get(key) as T | undefined;
  }

  set<T>(key: ContextKey<T>, value: T): this {
    this.#values ??= new Map();
    this.#values.set(key, value);
    return this;
  }

  has(key: ContextKey<unknown>): boolean {
    return this.#values?.has(key) ?? false;
  }

  delete(key: ContextKey<unknown>): boolean {
    return this.#values?.delete(key) ?? false;
  }
}
