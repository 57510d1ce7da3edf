import { type JsonSchema, jsonSchemaOf } from "cinnabar/inspect";
import type { AnyMethod, AnyService, Schema } from "cinnabar/standard";
import type { DescribedMethod, DescribedService, ReflectedMethod } from "./reflection-service.ts";

/**
 * A service as reflection describes it: its methods with their JSON Schemas. For tools that have the contract, and need
 * no server with reflection.
 *
 * @throws TypeError for anything but a service.
 *
 * @example
 * console.log(JSON.stringify(describeService(Files), undefined, 2));
 */
export function describeService(service: AnyService): DescribedService {
  if (!has(service, "cinnabar.Service"))
    throw new TypeError("describeService: the argument must be made by service()");
  const methods = Object.entries(service.methods).map(([name, method]) => describeMethod(name, method));
  return { service: service.name, methods };
}

/** What a list of methods says of one. */
export function summaryOf(name: string, { kind, idempotent, replay, priority }: AnyMethod): ReflectedMethod {
  return { name, kind, idempotent, replay, priority };
}

/** Each method is described once: a contract does not change. */
const described = new WeakMap<AnyMethod, Omit<DescribedMethod, "name">>();

/** A method with its JSON Schemas. */
export function describeMethod(name: string, method: AnyMethod): DescribedMethod {
  let known = described.get(method);
  if (known === undefined) {
    const { timeoutMs, input, items, output, errors } = method;
    known = {
      ...summaryOf("", method),
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
      ...schemaOf("input", input, "input"),
      ...schemaOf("items", items, "input"),
      ...schemaOf("output", output, "output"),
      errors: Object.fromEntries(
        Object.entries(errors).map(([reason, { data }]) => [reason, jsonSchemaOf(data, "output")]),
      ),
    };
    described.set(method, known);
  }
  return { ...known, name };
}

function schemaOf(
  name: "input" | "items" | "output",
  schema: Schema,
  side: "input" | "output",
): { readonly [part in "input" | "items" | "output"]?: JsonSchema } {
  return has(schema, "cinnabar.VoidSchema") ? {} : { [name]: jsonSchemaOf(schema, side) };
}

/** Whether a value has this brand. Brands are global, so that copies of `cinnabar` recognise each other's values. */
function has(value: unknown, brand: "cinnabar.Service" | "cinnabar.VoidSchema"): boolean {
  return (
    typeof value === "object" &&
    value !== null &&
    (value as Record<symbol, unknown>)[Symbol.for(brand)] === true
  );
}
