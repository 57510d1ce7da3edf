import { assertPriority, type Priority } from "../base/flow/priority.ts";
import { assertIdentifier, assertTimeoutMs } from "../base/options/assert-options.ts";
import { assertSchema, type Schema, voidSchema } from "./schema.ts";

/** Marks a method description. The symbol is global, so that copies of the package recognise each other's. */
export const methodBrand: unique symbol = Symbol.for("cinnabar.Method");

/** The kinds of methods. */
export type MethodKind = "unary" | "serverStream" | "clientStream" | "duplexStream" | "oneWay";

/** The declared errors of a method: the schema of the error's data by its reason. */
export type ErrorSchemas = { readonly [reason: string]: Schema };

/** The errors of a method that declares none. */
export type NoErrors = Record<never, never>;

/**
 * What every kind of method has.
 *
 * It leaves out the schemas on purpose: `service` asks for a record of these, and a schema in that type would flow back
 * into `unary`'s own inference and widen whatever its options leave out.
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
  /** Streams: how long a side waits for the other, in milliseconds; `Infinity`: for ever. Otherwise `Infinity`. */
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

/** A method of any kind. */
export interface AnyMethod extends MethodBase {
  /** Of the request. */
  readonly input: Schema;
  /** Of each item that the client sends; of no value where the kind has none. */
  readonly items: Schema;
  /** Of the answer, or of each item that the server sends. */
  readonly output: Schema;
  readonly errors: ErrorSchemas;
}

const maxErrors = 100;
const defaultWindow: StreamWindow = Object.freeze({ items: 1024, bytes: 256 * 1024 });
const defaultIdleTimeoutMs = 60_000;

/** The parts of a method that its options say, whatever the kind. */
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
  readonly window?: Partial<StreamWindow> | undefined;
}

/** Checks the parts and makes the method. @throws TypeError that names the kind and the option. */
export function makeMethod(kind: MethodKind, parts: MethodParts): AnyMethod {
  const { input = voidSchema, items = voidSchema, output = voidSchema, errors = {}, timeoutMs } = parts;
  const { idempotent = false, replay = false, priority = "normal" } = parts;
  const streams = kind !== "unary" && kind !== "oneWay";
  const { idleTimeoutMs = streams ? defaultIdleTimeoutMs : false, window = {} } = parts;
  assertSchema(`${kind}: input`, input);
  assertSchema(`${kind}: items`, items);
  assertSchema(`${kind}: output`, output);
  if (typeof idempotent !== "boolean") throw new TypeError(`${kind}: idempotent must be true or false`);
  if (typeof replay !== "boolean") throw new TypeError(`${kind}: replay must be true or false`);
  if (idempotent && replay)
    throw new TypeError(
      `${kind}: idempotent and replay exclude each other: replay is for methods that must not run twice`,
    );
  if (timeoutMs !== undefined) assertTimeoutMs(`${kind}: timeoutMs`, timeoutMs);
  assertPriority(`${kind}: priority`, priority);
  return Object.freeze<AnyMethod>({
    [methodBrand]: true,
    kind,
    input,
    items,
    output,
    errors: checkErrors(kind, errors),
    idempotent,
    replay,
    timeoutMs,
    priority,
    idleTimeoutMs: resolveIdleTimeout(kind, idleTimeoutMs),
    window: resolveWindow(kind, window, defaultWindow),
  });
}

/** `Infinity` for false. @throws TypeError that names the option. */
export function resolveIdleTimeout(where: string, idleTimeoutMs: number | false): number {
  if (idleTimeoutMs === false) return Number.POSITIVE_INFINITY;
  assertTimeoutMs(`${where}: idleTimeoutMs`, idleTimeoutMs);
  return idleTimeoutMs;
}

/** The window with what is left out taken from `base`. @throws TypeError or RangeError that names the field. */
export function resolveWindow(
  where: string,
  window: Partial<StreamWindow>,
  base: StreamWindow,
): StreamWindow {
  if (typeof window !== "object" || window === null)
    throw new TypeError(`${where}: window must be an object of items and bytes`);
  for (const name of Object.keys(window))
    if (name !== "items" && name !== "bytes")
      throw new TypeError(`${where}: unknown option "${name}" of window; known are items, bytes`);
  const { items = base.items, bytes = base.bytes } = window;
  assertWithin(`${where}: window.items`, items, 1, 65_535);
  assertWithin(`${where}: window.bytes`, bytes, 4096, 2 ** 30);
  return Object.freeze({ items, bytes });
}

function assertWithin(where: string, value: number, low: number, high: number): void {
  if (!(Number.isInteger(value) && value >= low && value <= high))
    throw new RangeError(`${where} must be an integer from ${low} to ${high}, it is ${String(value)}`);
}

/** A frozen copy without a prototype: reasons come from the wire and must not match members of `Object.prototype`. */
function checkErrors(kind: MethodKind, errors: ErrorSchemas): ErrorSchemas {
  if (typeof errors !== "object" || errors === null)
    throw new TypeError(`${kind}: errors must be an object of schemas`);
  const entries = Object.entries(errors);
  if (entries.length > maxErrors) {
    throw new TypeError(`${kind}: errors has ${entries.length} reasons; the limit is ${maxErrors}`);
  }
  const copy: Record<string, Schema> = Object.create(null);
  for (const [reason, schema] of entries) {
    assertIdentifier(`${kind}: errors`, reason);
    assertSchema(`${kind}: errors.${reason}`, schema);
    copy[reason] = schema;
  }
  return Object.freeze(copy);
}

/** Whether a value was made by `unary` or one of its like. */
export function isMethod(value: unknown): value is AnyMethod {
  return (
    typeof value === "object" &&
    value !== null &&
    (value as { [methodBrand]?: unknown })[methodBrand] === true
  );
}
