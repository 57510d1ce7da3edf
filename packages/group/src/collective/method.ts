import {
  anything,
  callback,
  checkedBy,
  type FieldsOf,
  integer,
  milliseconds,
  required,
  resolveNested,
  resolveOptions,
} from "cinnabar/options";
import {
  type AnyMethod,
  type AnyService,
  bulk as bulkSchema,
  clientStream,
  type ErrorDeclarations,
  type ErrorSchemas,
  type InferInput,
  type InferOutput,
  type NoErrors,
  type Schema,
  unary,
  type VoidSchema,
} from "cinnabar/standard";
import { type Envelope, envelopeSchema, type Reply, replySchema } from "./envelope.ts";
import { offerSchema } from "./message-schema.ts";

/** What a collective's contract says of the region that travels with each call. */
export interface CollectiveBulk {
  /** The longest region, in bytes: every member takes as much memory from the pool of its engine for a call. */
  readonly maxBytes: number;
}

/** What a collective has beside the unary method that carries it from node to node. */
export interface CollectiveParts<I extends Schema, O extends Schema> {
  readonly input: I;
  /** True when the collective declares no input, so that callers pass none. */
  readonly takesNothing: boolean;
  /** Undefined for a collective without output. */
  readonly output: O | undefined;
  readonly reduce: ((one: InferOutput<O>, other: InferOutput<O>) => InferOutput<O>) | undefined;
  readonly timeoutMs: number;
  /** The schema of the region that comes with each call; undefined for a collective without one. */
  readonly region: Schema | undefined;
}

/**
 * A method that all members of a group execute. Their outputs become one on their way to the caller. Made by
 * `collective`. On the wire it is a unary method; its own input and output travel in an envelope. With a region it is a
 * client stream. Its items say how much of the region the sender has.
 */
export interface CollectiveMethod<
  I extends Schema = Schema,
  O extends Schema = Schema,
  B extends CollectiveBulk | undefined = CollectiveBulk | undefined,
  E extends ErrorSchemas = ErrorSchemas,
> extends AnyMethod {
  readonly kind: "unary" | "clientStream";
  readonly input: Schema<Envelope>;
  readonly output: Schema<Reply>;
  readonly errors: NoErrors;
  readonly collective: CollectiveParts<I, O> & { readonly bulk: B; readonly errors: ErrorDeclarations<E> };
}

/** The options of `collective`. */
export interface CollectiveOptions<
  I extends Schema,
  O extends Schema,
  B extends CollectiveBulk | undefined = undefined,
  E extends ErrorSchemas = NoErrors,
> {
  /** Schema of the input, the same for all members. Default: no input. */
  readonly input?: I | undefined;
  /** Schema of each member's output, and of what `reduce` makes of two. Default: no output. */
  readonly output?: O | undefined;
  /**
   * Makes one output of two. It runs on inner members of the tree, in any order: it must be associative and commutative,
   * and must change neither argument. Needed exactly where there is an `output`.
   */
  readonly reduce?: ((one: InferOutput<O>, other: InferOutput<O>) => InferOutput<NoInfer<O>>) | undefined;
  /** The deadline of a call in milliseconds, at most 2^31 - 1, unless the caller sets one. Default: 10,000. */
  readonly timeoutMs?: number | undefined;
  /**
   * A region of the caller comes with each call, and all members have a copy of it when their handlers run. Default: no
   * region.
   */
  readonly bulk?: B | undefined;
  /** Errors that handlers may fail with, by `call.fail`, by reason, as in `unary`. At most 100. Default: none. */
  readonly errors?: E | undefined;
}

const bulkFields = {
  // An empty region would need no bulk, and the pool has no memory of no bytes.
  maxBytes: required(integer(1, Number.MAX_SAFE_INTEGER)),
} satisfies FieldsOf<CollectiveBulk>;

/** `unary` checks the schemas. */
const fields = {
  input: anything(),
  output: anything(),
  reduce: callback(),
  timeoutMs: milliseconds({ fallback: 10_000 }),
  bulk: checkedBy((where, name, value) => resolveNested(where, name, value, bulkFields)),
  errors: anything(),
} satisfies FieldsOf<CollectiveOptions<Schema, Schema>>;

/**
 * Describes a method that all members of a group execute. It stands in a `service` beside methods of other kinds; a
 * group calls it by `group.all(Service)`.
 *
 * @throws TypeError for an unknown option, a value of the wrong kind, `output` without `reduce` and the reverse.
 * RangeError for a number out of its range.
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
export function collective<
  I extends Schema = VoidSchema,
  O extends Schema = VoidSchema,
  B extends CollectiveBulk | undefined = undefined,
  E extends ErrorSchemas = NoErrors,
>(options: CollectiveOptions<I, O, B, E> = {}): CollectiveMethod<I, O, B, E> {
  const { timeoutMs } = resolveOptions("collective", options, fields);
  const { output, reduce, bulk } = options;
  if ((output === undefined) !== (reduce === undefined))
    throw new TypeError("collective: output and reduce belong together; one of them is missing");
  // Checks the schemas, and has the one of no input. Errors name the option.
  const { input: inputSchema, errors } = unary({
    ...(options.input !== undefined && { input: options.input }),
    ...(output !== undefined && { output }),
    ...(options.errors !== undefined && { errors: options.errors }),
    timeoutMs,
  });
  const region = bulk && bulkSchema("read", { minBytes: 1, maxBytes: bulk.maxBytes });
  const input = inputSchema as I;
  const takesNothing = options.input === undefined;
  const parts = Object.freeze({ input, takesNothing, output, reduce, timeoutMs, bulk, region, errors });
  const carrier =
    region === undefined
      ? unary({ input: envelopeSchema, output: replySchema, timeoutMs })
      : // The sender is silent when it has all, and a handler takes its time: a lost peer is noticed by its heartbeat.
        clientStream({
          input: envelopeSchema,
          items: offerSchema,
          output: replySchema,
          timeoutMs,
          idleTimeoutMs: false,
        });
  return Object.freeze({ ...carrier, collective: parts }) as unknown as CollectiveMethod<I, O, B, E>;
}

/** Whether a method was made by `collective`. */
export function isCollective(method: AnyMethod): method is CollectiveMethod {
  return typeof (method as Partial<CollectiveMethod>).collective === "object";
}

/** The mark of a collective: methods of other kinds do not have it. It holds for all schemas. */
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

/** A collective's declared errors, by reason. */
export type ErrorSchemasOf<M> = M extends {
  readonly collective: { readonly errors: infer E extends ErrorSchemas };
}
  ? E
  : NoErrors;

/** `With` for a collective with a region, else `Without`. */
export type WithBulk<M, With, Without> = M extends {
  readonly collective: { readonly bulk: infer B };
}
  ? [B] extends [CollectiveBulk]
    ? With
    : Without
  : Without;

/** The input that a caller passes. */
export type CollectiveInput<M> = InferInput<InputSchemaOf<M>>;

/** The output that a caller receives. */
export type CollectiveOutput<M> = InferOutput<OutputSchemaOf<M>>;

/** The names of a service's collectives. */
export type CollectivesOf<S extends AnyService> = {
  [K in keyof S["methods"]]: S["methods"][K] extends AnyCollective ? K : never;
}[keyof S["methods"]];
