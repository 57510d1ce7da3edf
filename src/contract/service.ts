/*
 * The room `contract`: what a service promises: its methods, their schemas and declared errors.
 * Promises: a contract is data that both sides share. It needs no module of Node, so it runs in browsers.
 * Takes: the types of regions from `memory`, the keys of metadata from `wire`.
 */

import { assertIdentifier } from "../base/options/identifier.ts";
import { checkedBy, fail, isBranded } from "../base/options/options.ts";
import { type AnyMethod, isMethod, type MethodBase } from "./method.ts";

/** Marks a service; global, so that copies of the package recognise each other's. */
export const serviceBrand: unique symbol = Symbol.for("cinnabar.Service");

/** Methods by name, each made by `unary`. */
export type MethodMap = { readonly [name: string]: MethodBase };

/** A service description: a frozen value that server and client import. Made by `service`. */
export interface Service<M extends MethodMap = { readonly [name: string]: AnyMethod }> {
  readonly [serviceBrand]: true;
  /** Name on the wire, with the major version: "frames.v1". */
  readonly name: string;
  readonly methods: M;
}

/** A service with any methods. */
export type AnyService = Service;

const serviceName = /^[A-Za-z0-9._/-]+$/;
const maxServiceNameLength = 128;
const maxMethods = 1000;

/**
 * Describes a service: a name, and its methods. Server and client import the same value.
 *
 * @param name Name on the wire: 1 to 128 letters, digits, `.`, `_`, `-` and `/`, not digits alone. Put the major
 * version into it: "frames.v1".
 * @param methods 1 to 1000 methods by name. A name is an identifier of at most 128 characters. Names that every object
 * has (`then`, `constructor`, `toString`, …) are reserved, because a client is an object of functions.
 * @throws TypeError that names the field and the limit.
 *
 * @example
 * import { service, unary } from "cinnabar";
 * import { z } from "zod";
 *
 * export const Greeter = service("greeter.v1", {
 *   greet: unary({ input: z.object({ name: z.string() }), output: z.object({ text: z.string() }) }),
 * });
 */
export function service<M extends MethodMap>(name: string, methods: M): Service<M> {
  assertServiceName(name);
  const where = `service "${name}"`;
  if (typeof methods !== "object" || methods === null)
    throw new TypeError(`${where}: methods must be an object`);
  const entries = Object.entries(methods);
  if (entries.length === 0)
    throw new TypeError(`${where}: methods is empty; a service has at least 1 method`);
  if (entries.length > maxMethods) {
    throw new TypeError(`${where}: methods has ${entries.length} entries; the limit is ${maxMethods}`);
  }
  // Without a prototype: method names come from the wire and must not find Object.prototype's members.
  const copy: Record<string, MethodBase> = Object.create(null);
  for (const [methodName, method] of entries) {
    assertIdentifier(`${where}: methods`, methodName);
    if (!isMethod(method)) {
      throw new TypeError(
        `${where}: methods.${methodName} is not a method; make it with unary({ … }) or a kind of stream`,
      );
    }
    copy[methodName] = method;
  }
  return Object.freeze<Service<M>>({ [serviceBrand]: true, name, methods: Object.freeze(copy) as M });
}

/** Whether a value was made by `service`. */
export function isService(value: unknown): value is AnyService {
  return isBranded(value, serviceBrand);
}

const instanceName = /^[A-Za-z0-9._-]{1,64}$/;

/** The name of an instance of a service: an option of `implement` and of `peer.client`. */
export const instanceField = checkedBy((where, name, value): string =>
  typeof value === "string" && instanceName.test(value)
    ? value
    : fail(TypeError, where, name, 'a name of 1 to 64 letters, digits, ".", "_" and "-"', value),
);

/**
 * The name that an instance of a service is served under: "kv.v1#shard-3". Without an instance it is the service's own.
 *
 * @throws TypeError for a name that is too long for a service table.
 */
export function servedName({ name }: { readonly name: string }, instance: string | undefined): string {
  if (instance === undefined) return name;
  const whole = `${name}#${instance}`;
  if (whole.length <= maxServiceNameLength) return whole;
  throw new TypeError(
    `service "${name}": with the instance "${instance}" its name has ${whole.length} characters; the limit is ${maxServiceNameLength}`,
  );
}

/**
 * The full name of a method, as errors, logs and channels show it: "frames.v1/stat", or "frames.v1#left/stat" of an
 * instance. Split it at the last slash: service names may contain slashes, method names may not.
 */
export function methodPath(service: { readonly name: string }, method: string): string {
  return `${service.name}/${method}`;
}

function assertServiceName(name: unknown): void {
  if (typeof name !== "string") throw new TypeError(`service: name must be a string, not ${typeof name}`);
  if (name.length < 1 || name.length > maxServiceNameLength) {
    throw new TypeError(
      `service: name has ${name.length} characters; the limits are 1 and ${maxServiceNameLength}`,
    );
  }
  if (!serviceName.test(name)) {
    throw new TypeError(`service: name "${name}" may contain only letters, digits, ".", "_", "-" and "/"`);
  }
  if (/^\d+$/.test(name)) throw new TypeError(`service: name "${name}" must not consist of digits alone`);
}
