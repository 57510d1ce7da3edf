import type { JsonSchema } from "cinnabar/inspect";
import { service, unary } from "cinnabar/standard";
import { type JsonShape, shaped } from "./json-shape.ts";

/** A method as reflection lists it. */
export interface ReflectedMethod {
  readonly name: string;
  /** `unary`, `serverStream`, `clientStream`, `duplexStream` or `oneWay`. */
  readonly kind: string;
  readonly idempotent: boolean;
  readonly replay: boolean;
  /** The priority of calls without one of their own: `control` or `normal`. */
  readonly priority: string;
}

/** A service as reflection lists it. */
export interface ReflectedService {
  readonly service: string;
  /** Which of several implementations of the service it is; absent for the only one. */
  readonly instance?: string;
  readonly methods: readonly ReflectedMethod[];
}

/** A method with its schemas. Where the contract declares no value, there is no schema. */
export interface DescribedMethod extends ReflectedMethod {
  /** The time limit of calls without one of their own, in milliseconds. Absent: the client's. */
  readonly timeoutMs?: number;
  /** The caller's input; of a stream with items from the caller, its opening input. */
  readonly input?: JsonSchema;
  /** An item that the caller sends. */
  readonly items?: JsonSchema;
  /** The answer, or an item of it. */
  readonly output?: JsonSchema;
  /** The data of each declared error, by reason. */
  readonly errors: Readonly<Record<string, JsonSchema>>;
}

/** A service with the schemas of its methods. */
export interface DescribedService extends Omit<ReflectedService, "methods"> {
  readonly methods: readonly DescribedMethod[];
}

const word: JsonShape = { type: "string" };
const flag: JsonShape = { type: "boolean" };
const anyObject: JsonShape = { type: "object" };

const listedMethod: JsonShape = {
  type: "object",
  properties: { name: word, kind: word, idempotent: flag, replay: flag, priority: word },
  required: ["name", "kind", "idempotent", "replay", "priority"],
};

const describedMethod: JsonShape = {
  type: "object",
  properties: {
    ...listedMethod.properties,
    timeoutMs: { type: "number" },
    input: anyObject,
    items: anyObject,
    output: anyObject,
    errors: anyObject,
  },
  required: [...(listedMethod.required ?? []), "errors"],
};

const serviceOf = (method: JsonShape): JsonShape => ({
  type: "object",
  properties: { service: word, instance: word, methods: { type: "array", items: method } },
  required: ["service", "methods"],
});

/**
 * The contract of `reflection(engine)`, which lists what an engine serves. An engine that does not serve it answers
 * `unimplemented`. It lists only methods that `security.allow` lets the caller call.
 *
 * Schemas are JSON Schemas of the draft 2020-12, for libraries that implement Standard JSON Schema (zod does). Values
 * that JSON does not have are described as the command line writes them, with `x-cinnabar-…` beside.
 *
 * @example
 * const reflection = peer.client(Reflection);
 * for (const { service, methods } of await reflection.list()) console.log(service, methods.length);
 * const { methods } = await reflection.describe({ service: "files.v1" });
 */
export const Reflection = service("cinnabar.reflection.v1", {
  list: unary({
    output: shaped<readonly ReflectedService[]>({ type: "array", items: serviceOf(listedMethod) }),
    idempotent: true,
  }),
  describe: unary({
    input: shaped<{ readonly service: string; readonly instance?: string }>({
      type: "object",
      properties: {
        service: { type: "string", maxLength: 128 },
        instance: { type: "string", maxLength: 64 },
      },
      required: ["service"],
    }),
    output: shaped<DescribedService>(serviceOf(describedMethod)),
    idempotent: true,
  }),
});
