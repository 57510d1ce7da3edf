import { assertIdentifier } from "./check.ts";
import { type AnyMethod, isMethod, type MethodBase } from "./unary.ts";

/** Marks a service; global, so that duplicate copies of the package know each other's. */
export const serviceBrand: unique symbol = Symbol.for("cinnabar.Service");

/** The methods of a service by name, each made by `unary`. */
export type MethodMap = { readonly [name: string]: MethodBase };

/** What a service promises: a frozen plain value that both sides import, made by `service`. */
export interface Service<M extends MethodMap = { readonly [name: string]: AnyMethod }> {
  readonly [serviceBrand]: true;
  /** Its name on the wire, with the major version: "frames.v1". */
  readonly name: string;
  readonly methods: M;
}

/** A service of any methods. */
export type AnyService = Service;

const serviceName = /^[A-Za-z0-9._/-]+$/;
const maxServiceNameLength = 128;
const maxMethods = 1000;

/**
 * Gathers methods into a service.
 *
 * @param name 1 to 128 characters of letters, digits, `.`, `_`, `-` and `/`. Let it carry the major version: "frames.v1".
 * @param methods 1 to 1000 methods by name. A name is an identifier of at most 128 characters and not one that objects
 * use themselves (`then`, `constructor`, `toString`, …), because a client is a plain object of functions.
 * @throws TypeError that names the field and the limit.
 */
export function service<M extends MethodMap>(name: string, methods: M): Service<M> {
  assertServiceName(name);
  const where = `service "${name}"`;
  if (typeof methods !== "object" || methods === null)
    throw new TypeError(`${where}: methods must be an object`);
  const entries = Object.entries(methods);
  if (entries.length === 0) throw new TypeError(`${where}: methods is empty, a service has at least 1`);
  if (entries.length > maxMethods) {
    throw new TypeError(`${where}: methods has ${entries.length} entries, the limit is ${maxMethods}`);
  }
  // Without a prototype: method names come from the wire and must not find Object.prototype's members.
  const copy: Record<string, MethodBase> = Object.create(null);
  for (const [methodName, method] of entries) {
    assertIdentifier(`${where}: methods`, methodName);
    if (!isMethod(method)) {
      throw new TypeError(`${where}: methods.${methodName} is not a method; make it with unary({ … })`);
    }
    copy[methodName] = method;
  }
  return Object.freeze<Service<M>>({ [serviceBrand]: true, name, methods: Object.freeze(copy) as M });
}

/** Whether a value is a service. */
export function isService(value: unknown): value is AnyService {
  return (
    typeof value === "object" &&
    value !== null &&
    (value as { [serviceBrand]?: unknown })[serviceBrand] === true
  );
}

/**
 * A method's full name, as errors, logs and channels say it: "frames.v1/stat". The last slash parts the two, for a
 * service's name may have slashes and a method's cannot.
 */
export function methodPath(service: { readonly name: string }, method: string): string {
  return `${service.name}/${method}`;
}

function assertServiceName(name: unknown): void {
  if (typeof name !== "string") throw new TypeError(`service: name must be a string, it is ${typeof name}`);
  if (name.length < 1 || name.length > maxServiceNameLength) {
    throw new TypeError(
      `service: name has ${name.length} characters, it may have 1 to ${maxServiceNameLength}`,
    );
  }
  if (!serviceName.test(name)) {
    throw new TypeError(`service: name "${name}" may have only letters, digits, ".", "_", "-" and "/"`);
  }
}
