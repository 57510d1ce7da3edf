import { isSchema } from "./schema.ts";

const identifier = /^[A-Za-z_$][A-Za-z0-9_$]*$/;
const maxIdentifierLength = 128;

/** The longest time a timer can hold, and a frame: 24.8 days. */
const maxTimeoutMs = 2_147_483_647;

/**
 * Names that cannot be methods of a client. A client is a plain object of functions: it may be awaited (`then`), printed
 * (`toJSON`) and used as any object is (whatever `Object.prototype` has, `prototype`).
 */
function isReserved(name: string): boolean {
  return name === "then" || name === "toJSON" || name === "prototype" || name in Object.prototype;
}

/** @throws TypeError unless `options` is an object that has known fields only. */
export function assertOptions(where: string, options: object, known: readonly string[]): void {
  if (typeof options !== "object" || options === null)
    throw new TypeError(`${where}: options must be an object`);
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) {
      throw new TypeError(`${where}: unknown option "${name}"; known are ${known.join(", ")}`);
    }
  }
}

/** @throws TypeError unless the value is a Standard Schema. */
export function assertSchema(where: string, value: unknown): void {
  if (!isSchema(value)) {
    throw new TypeError(
      `${where} must be a Standard Schema v1 (zod, valibot, arktype, …), with a "~standard" property`,
    );
  }
}

/** @throws TypeError unless the name can stand behind a dot and belongs to nobody else. */
export function assertIdentifier(where: string, name: string): void {
  if (name.length > maxIdentifierLength) {
    throw new TypeError(
      `${where}: the name "${name.slice(0, 32)}…" has ${name.length} characters, the limit is ${maxIdentifierLength}`,
    );
  }
  if (!identifier.test(name)) {
    throw new TypeError(
      `${where}: "${name}" is not an identifier (letters, digits, _ and $, no digit first)`,
    );
  }
  if (isReserved(name)) throw new TypeError(`${where}: "${name}" is reserved`);
}

/** @throws TypeError unless the value is a time a timer can hold. */
export function assertTimeoutMs(where: string, value: unknown): void {
  if (typeof value !== "number" || !(value > 0 && value <= maxTimeoutMs)) {
    throw new TypeError(
      `${where} must be a number of milliseconds above 0, at most ${maxTimeoutMs}; it is ${String(value)}`,
    );
  }
}
