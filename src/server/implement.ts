import type { HandlersOf } from "../contract/infer.ts";
import { type AnyService, isService } from "../contract/service.ts";
import { type AdmissionOptions, resolveAdmission } from "./admission-options.ts";
import type { CallContext, HandlerCall } from "./call-context.ts";

/** A service with the functions that fulfil it, ready to be served. */
export interface Implementation {
  readonly service: AnyService;
  readonly handlers: Readonly<Record<string, Handler>>;
  /** Limits of the service's own. */
  readonly admission?: AdmissionOptions | undefined;
}

/** A handler as the dispatcher sees it, its types checked by `implement`. */
export type Handler = (input: unknown, call: HandlerCall) => unknown;

/**
 * Pairs a service with its handlers: a plain object with one function a method, checked by the compiler against the contract and at run time for
 * completeness. Give it to `Engine.open({ serve: [...] })`.
 *
 * A handler gets the parsed input and the call, and returns the output or a promise of it. It fails with `call.fail(reason, data)` for what the
 * contract declares, or by throwing an `RpcError`; anything else it throws reaches the caller as `internal` without its text.
 *
 * Handlers may also be the methods of a class instance; what else it has is its own business. In a plain object a function that is no method of
 * the contract is taken for a misspelling.
 *
 * `admission` bounds how many of the service's handlers run at once, and what waits meanwhile; what it leaves out, the engine's says.
 *
 * @throws TypeError naming a method that is missing, not a function, or not in the contract, or an option that is unknown; RangeError for a limit out of bounds.
 */
export function implement<S extends AnyService>(
  service: S,
  handlers: HandlersOf<S, CallContext>,
  admission?: AdmissionOptions,
): Implementation {
  if (!isService(service)) throw new TypeError("implement: the first argument must be made by service()");
  const where = `implement "${service.name}"`;
  if (typeof handlers !== "object" || handlers === null)
    throw new TypeError(`${where}: handlers must be an object`);
  const table: Record<string, Handler> = Object.create(null);
  for (const method of Object.keys(service.methods)) {
    const handler = (handlers as Record<string, unknown>)[method];
    if (typeof handler !== "function") throw new TypeError(`${where}: method "${method}" has no handler`);
    // Methods of a class instance or of an object with state keep their `this`.
    table[method] = handler.bind(handlers) as Handler;
  }
  for (const [name, value] of isPlain(handlers) ? Object.entries(handlers) : []) {
    if (typeof value === "function" && !(name in table))
      throw new TypeError(`${where}: handler "${name}" is not a method of the service`);
  }
  if (admission !== undefined) resolveAdmission(where, admission);
  return Object.freeze({ service, handlers: Object.freeze(table), admission });
}

/** Whether a value is what `implement` returns, rather than a service or its handlers. */
export function isImplementation(value: unknown): value is Implementation {
  if (typeof value !== "object" || value === null) return false;
  const { service, handlers } = value as Partial<Implementation>;
  return isService(service) && typeof handlers === "object" && handlers !== null;
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
