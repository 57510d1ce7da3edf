import {
  type AnyMethod,
  type AnyService,
  type InferInput,
  type InferOutput,
  type NoErrors,
  type Schema,
  type UnaryMethod,
  unary,
  type VoidSchema,
} from "cinnabar/standard";
import { type Envelope, envelopeSchema, type Reply, replySchema } from "./envelope.ts";

/** What a collective has beside the unary method that carries it from node to node. */
export interface CollectiveParts<I extends Schema, O extends Schema> {
  readonly input: I;
  /** Undefined for a collective without output. */
  readonly output: O | undefined;
  readonly reduce: ((one: InferOutput<O>, other: InferOutput<O>) => InferOutput<O>) | undefined;
  readonly timeoutMs: number;
}

/**
 * A method that all members of a group execute, whose outputs become one on their way to the caller. Made by
 * `collective`. On the wire it is a unary method; its own input and output travel in an envelope.
 */
export interface CollectiveMethod<I extends Schema = Schema, O extends Schema = Schema>
  extends UnaryMethod<Schema<Envelope>, Schema<Reply>, NoErrors> {
  readonly collective: CollectiveParts<I, O>;
}

/** The options of `collective`. */
export interface CollectiveOptions<I extends Schema, O extends Schema> {
  /** Schema of the input, the same for all members. Default: no input. */
  readonly input?: I;
  /** Schema of what each member returns, and of what `reduce` makes of two. Default: no output. */
  readonly output?: O;
  /**
   * Makes one output of two. It runs on inner members of the tree, in any order: it must be associative and commutative,
   * and must change neither argument. Needed exactly where there is an `output`.
   */
  readonly reduce?: (one: InferOutput<O>, other: InferOutput<O>) => InferOutput<NoInfer<O>>;
  /** The deadline of a call in milliseconds, at most 2^31 - 1, unless the caller sets one. Default: 10,000. */
  readonly timeoutMs?: number;
}

const known = ["input", "output", "reduce", "timeoutMs"];
const defaultTimeoutMs = 10_000;

/**
 * Describes a method that all members of a group execute. It stands in a `service` beside methods of other kinds; a
 * group calls it by `collectives.all(Service)`.
 *
 * @throws TypeError for an unknown option, a value that is not a schema, a `timeoutMs` that is not a positive number, or
 * an `output` without `reduce`
 *
 * @example
 * const Store = service("store.v1", {
 *   usage: collective({
 *     input: z.object({ pool: z.string() }),
 *     output: z.object({ bytes: z.number(), members: z.number() }),
 *     reduce: (a, b) => ({ bytes: a.bytes + b.bytes, members: a.members + b.members }),
 *   }),
 * });
 */
export function collective<I extends Schema = VoidSchema, O extends Schema = VoidSchema>(
  options: CollectiveOptions<I, O> = {},
): CollectiveMethod<I, O> {
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown !== undefined)
    throw new TypeError(`collective: unknown option "${unknown}"; known are ${known.join(", ")}`);
  const { output, reduce, timeoutMs = defaultTimeoutMs } = options;
  if (reduce !== undefined && typeof reduce !== "function")
    throw new TypeError("collective: reduce must be a function");
  if ((output === undefined) !== (reduce === undefined))
    throw new TypeError("collective: output and reduce belong together; one of them is missing");
  // Checks the schemas, and has the one of no input. Errors name the option.
  const { input: inputSchema } = unary({
    ...(options.input !== undefined && { input: options.input }),
    ...(output !== undefined && { output }),
    timeoutMs,
  });
  const parts = Object.freeze({ input: inputSchema as I, output, reduce, timeoutMs });
  const carrier = unary({ input: envelopeSchema, output: replySchema, timeoutMs });
  return Object.freeze({ ...carrier, collective: parts }) as CollectiveMethod<I, O>;
}

/** Whether a method was made by `collective`. */
export function isCollective(method: AnyMethod): method is CollectiveMethod {
  return typeof (method as Partial<CollectiveMethod>).collective === "object";
}

/** What tells a collective from methods of other kinds, whatever its schemas are. */
export interface AnyCollective {
  readonly collective: object;
}

/** The schema of a collective's input. */
export type InputSchemaOf<M> = M extends { readonly collective: { readonly input: infer I extends Schema } }
  ? I
  : never;

/** The schema of a collective's output. */
export type OutputSchemaOf<M> = M extends {
  readonly collective: { readonly output: (infer O extends Schema) | undefined };
}
  ? O
  : never;

/** The input that a caller passes. */
export type CollectiveInput<M> = InferInput<InputSchemaOf<M>>;

/** The output that a caller receives. */
export type CollectiveOutput<M> = InferOutput<OutputSchemaOf<M>>;

/** The names of a service's collectives. */
export type CollectivesOf<S extends AnyService> = {
  [K in keyof S["methods"]]: S["methods"][K] extends AnyCollective ? K : never;
}[keyof S["methods"]];
