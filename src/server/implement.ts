import { boolean, checkOptions, type FieldsOf } from "../base/options/options.ts";
import { type Middleware, middlewareField } from "../call/middleware.ts";
import type { HandlersOf } from "../contract/infer.ts";
import { type AnyService, instanceField, isService, servedName } from "../contract/service.ts";
import { type AdmissionOptions, admissionFields } from "./admission-options.ts";
import type { CallContext, HandlerCall } from "./call-context.ts";

/** A service with its handlers, made by `implement`. */
export interface Implementation {
  readonly service: AnyService;
  /** The name of this implementation, if one engine serves the service several times. Undefined: no name. */
  readonly instance?: string | undefined;
  /** @internal For the engine. */
  readonly handlers: Readonly<Record<string, Handler>>;
  /** Admission control of this service. The engine's options apply to missing fields. False: no admission control. */
  readonly admission?: AdmissionOptions | false | undefined;
  /** Middleware of this service. It runs inside that of the engine. */
  readonly middleware?: readonly Middleware[] | undefined;
}

/** Options of `implement`: admission control, middleware and the instance of one service. */
export interface ImplementOptions extends AdmissionOptions {
  /**
   * Names this implementation, so that one engine can serve a service several times: 1 to 64 letters, digits, `.`, `_`
   * and `-`. `peer.client(service, { instance })` calls it. `call.method`, `allow`, metrics and health show the
   * service's name with `#` and the instance: `kv.v1#shard-3/get`. Default: no name.
   */
  readonly instance?: string | undefined;
  /**
   * False: no admission control. Handlers start at once and do not count in the engine's `admission`. For a service
   * with streams that stay open as long as their clients, such as a service that reports the engine's state. Default
   * true.
   */
  readonly admission?: boolean | undefined;
  /** Runs around every handler of this service, inside the middleware of the engine. Default: no middleware. */
  readonly middleware?: readonly Middleware[] | undefined;
}

const implementFields = {
  ...admissionFields,
  admission: boolean(true),
  middleware: middlewareField,
  instance: instanceField,
} satisfies FieldsOf<ImplementOptions>;

/** A handler without its types. `implement` has checked it. */
export type Handler = (input: unknown, call: HandlerCall) => unknown;

/**
 * Implements a service: one handler for each method. Pass the result to `Engine.open({ serve: [...] })`.
 *
 * A handler receives the parsed input and the call, and returns the output or a promise of it. It fails with
 * `call.fail(reason, data)` for declared errors, or by throwing an `RpcError`. After any other error the caller
 * receives `internal`, without the text of the error.
 *
 * `handlers` may be an object or an instance of a class. In an object, a function that is not a method of the service
 * is an error. An instance may have other members.
 *
 * `options` limit how many handlers of this service run at once, and the requests that wait. The engine's `admission`
 * option applies to missing fields. `options.middleware` runs around every handler.
 *
 * @throws TypeError for a method without a handler, a handler without a method, or an unknown option; RangeError for a
 * limit out of bounds.
 *
 * @example
 * const greeter = implement(Greeter, {
 *   greet({ name }, call) {
 *     if (name === "") return call.fail("NameIsEmpty", { hint: "give a name" });
 *     return { text: `Hello, ${name}` };
 *   },
 * });
 * const engine = await Engine.open({ listen: ["tcp://127.0.0.1:7400"], serve: [greeter] });
 */
export function implement<S extends AnyService>(
  service: S,
  handlers: HandlersOf<S, CallContext>,
  options: ImplementOptions = {},
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
  checkOptions(where, options, implementFields);
  const { middleware, instance, admission: isAdmitted = true, ...limits } = options;
  servedName(service, instance);
  const admission = isAdmitted ? (Object.keys(limits).length === 0 ? undefined : limits) : false;
  return Object.freeze({ service, handlers: Object.freeze(table), admission, middleware, instance });
}

/** Whether a value was made by `implement`. */
export function isImplementation(value: unknown): value is Implementation {
  if (typeof value !== "object" || value === null) return false;
  const { service, handlers } = value as Partial<Implementation>;
  return isService(service) && typeof handlers === "object" && handlers !== null;
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
