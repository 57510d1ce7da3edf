import { type Priority, priorities } from "../base/flow/priority.ts";
import {
  boolean,
  checkedBy,
  completed,
  type FieldsOf,
  group,
  integer,
  isBranded,
  milliseconds,
  oneOf,
  orFalse,
  resolveOptions,
} from "../base/options/options.ts";
import { callerMemoryIn } from "./caller-memory.ts";
import { declareErrors, type ErrorDeclarations, type ErrorSchemas } from "./declared-error.ts";
import { isSchema, type Schema, schemaField, type VoidSchema, voidSchema } from "./schema.ts";

/** Marks a method description. The symbol is global, so that copies of the package recognise each other's. */
export const methodBrand: unique symbol = Symbol.for("cinnabar.Method");

/** The kinds of methods. */
export type MethodKind = "unary" | "serverStream" | "clientStream" | "duplexStream" | "oneWay";

/**
 * The common part of all kinds of methods.
 *
 * It has no schemas: `service` takes a record of these. A schema in that type would flow back into `unary`'s own
 * inference, and widen the types of options that are left out.
 */
export interface MethodBase {
  readonly [methodBrand]: true;
  readonly kind: MethodKind;
  /** Whether a second execution does no harm. Idempotent methods may be retried. */
  readonly idempotent: boolean;
  /** Whether the server keeps responses, so that a retried call is not executed twice. */
  readonly replay: boolean;
  /** Time limit of a call in milliseconds, unless the caller sets one; `undefined`: the client's default. */
  readonly timeoutMs: number | undefined;
  /** Priority of a call, unless the caller sets one. */
  readonly priority: Priority;
  /**
   * Streams: how long a side waits for the other, in milliseconds; `Infinity`: without a limit. Otherwise `Infinity`.
   */
  readonly idleTimeoutMs: number;
  /** Streams: the items and bytes that may be on their way or wait for the consumer. */
  readonly window: StreamWindow;
}

/** How much of a stream may be on its way, or wait for its consumer, in each direction. */
export interface StreamWindow {
  /** Items, 1 to 65,535. Default 1024. */
  readonly items: number;
  /**
   * Bytes, 4096 to 1 GiB: of the encoded items, and 16 for each. One item may exceed it, and then travels alone.
   * Default 256 KiB.
   */
  readonly bytes: number;
}

/** The window of a stream, in part. */
export type StreamWindowOptions = { readonly [K in keyof StreamWindow]?: StreamWindow[K] | undefined };

/** A method of one kind with its schemas: a frozen value, made by the function with the name of the kind. */
export interface Method<
  K extends MethodKind = MethodKind,
  I extends Schema = Schema,
  O extends Schema = Schema,
  E extends ErrorSchemas = ErrorSchemas,
  T extends Schema = VoidSchema,
> extends MethodBase {
  readonly kind: K;
  /** The schema of the request. */
  readonly input: I;
  /** The schema of each item that the client sends; the schema of no value where the kind has no such items. */
  readonly items: T;
  /** The schema of the answer, or of each item that the server sends. */
  readonly output: O;
  /** The declared errors, by reason. Each is the schema of its data, and has a code and a text. */
  readonly errors: ErrorDeclarations<E>;
}

/** A method of any kind. */
export type AnyMethod = Method<MethodKind, Schema, Schema, ErrorSchemas, Schema>;

const defaultWindow: StreamWindow = Object.freeze({ items: 1024, bytes: 256 * 1024 });
const defaultIdleTimeoutMs = 60_000;

/** The parts of a method that its options give, for any kind. */
export interface MethodParts {
  readonly input?: Schema | undefined;
  readonly items?: Schema | undefined;
  readonly output?: Schema | undefined;
  readonly errors?: ErrorSchemas | undefined;
  readonly idempotent?: boolean | undefined;
  readonly replay?: boolean | undefined;
  readonly timeoutMs?: number | undefined;
  readonly priority?: Priority | undefined;
  readonly idleTimeoutMs?: number | false | undefined;
  readonly window?: StreamWindowOptions | undefined;
}

/** How long a side waits for the other. `false` resolves to `Infinity`. */
export const idleTimeoutField = completed(
  { ...orFalse(milliseconds()), fallback: false as number | false },
  (idleTimeoutMs) => (idleTimeoutMs === false ? Number.POSITIVE_INFINITY : idleTimeoutMs),
);

/** The window of a stream; options that are left out are undefined. */
export const windowField = group({
  items: integer(1, 65_535),
  bytes: integer(4096, 2 ** 30),
} satisfies FieldsOf<StreamWindow>);

/** The window; options that are left out come from `base`. */
export function completeWindow({ items, bytes }: StreamWindowOptions, base: StreamWindow): StreamWindow {
  return Object.freeze({ items: items ?? base.items, bytes: bytes ?? base.bytes });
}

const partFields = {
  input: schemaField,
  items: schemaField,
  output: schemaField,
  errors: checkedBy(declareErrors),
  idempotent: boolean(false),
  replay: boolean(false),
  timeoutMs: milliseconds(),
  priority: oneOf(priorities, "normal"),
  idleTimeoutMs: idleTimeoutField,
  window: windowField,
} satisfies FieldsOf<MethodParts>;

const ofStreams = [
  ...(["input", "output", "errors", "idempotent"] as const),
  ...(["timeoutMs", "idleTimeoutMs", "priority", "window"] as const),
];

/** The parts of each kind of method. */
const partsOf = {
  unary: ["input", "output", "errors", "idempotent", "replay", "timeoutMs", "priority"],
  oneWay: ["input", "timeoutMs", "priority"],
  serverStream: ofStreams,
  clientStream: ["items", ...ofStreams],
  duplexStream: ["items", ...ofStreams],
} as const satisfies Readonly<Record<MethodKind, readonly string[]>>;

const fieldsOfKind = Object.fromEntries(
  Object.entries(partsOf).map(([kind, names]) => [
    kind,
    Object.fromEntries(names.map((name) => [name, partFields[name as keyof MethodParts]])),
  ]),
) as Readonly<Record<MethodKind, typeof partFields>>;

/** Checks the parts and makes the method. @throws TypeError or RangeError that names the kind and the option. */
export function makeMethod(kind: MethodKind, options: MethodParts): AnyMethod {
  if (isSchema(options))
    throw new TypeError(`${kind}: it takes an object of schemas, as in ${kind}({ input: … }), not a schema`);
  const streams = kind !== "unary" && kind !== "oneWay";
  const {
    input,
    items,
    output,
    errors,
    idempotent = false,
    replay = false,
    ...parts
  } = resolveOptions(kind, options, fieldsOfKind[kind]);
  const { timeoutMs, priority = "normal", window = {} } = parts;
  if (idempotent && replay)
    throw new TypeError(
      `${kind}: idempotent and replay exclude each other: replay is for methods that must not run twice`,
    );
  refuseCallerMemory(kind, "output", output);
  refuseCallerMemory(kind, "items", items);
  if (kind === "oneWay") refuseCallerMemory(kind, "input", input);
  for (const [reason, { data }] of Object.entries(errors ?? {}))
    refuseCallerMemory(kind, `errors.${reason}`, data);
  const idleTimeoutMs =
    options.idleTimeoutMs === undefined && streams ? defaultIdleTimeoutMs : parts.idleTimeoutMs;
  return Object.freeze<AnyMethod>({
    [methodBrand]: true,
    kind,
    input: input ?? voidSchema,
    items: items ?? voidSchema,
    output: output ?? voidSchema,
    errors: errors ?? Object.freeze(Object.create(null)),
    idempotent,
    replay,
    timeoutMs,
    priority,
    idleTimeoutMs: idleTimeoutMs ?? Number.POSITIVE_INFINITY,
    window: completeWindow(window, defaultWindow),
  });
}

/** Regions and byte streams belong to an open call: an answer, an item or a one-way call would outlive it. */
function refuseCallerMemory(kind: MethodKind, name: string, schema: Schema | undefined): void {
  const path = schema === undefined ? undefined : callerMemoryIn(schema);
  if (path === undefined) return;
  throw new TypeError(
    `${kind}: ${name}${path} is a region or a byte stream of the caller, which only the input of a call with an answer can carry; use bytes(), or let the handler write to a region of the input`,
  );
}

/** Whether a value was made by `unary` or a similar function. */
export function isMethod(value: unknown): value is AnyMethod {
  return isBranded(value, methodBrand);
}
