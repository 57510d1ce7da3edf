import { maxTimeoutMs, shown } from "./options.ts";

export { shown } from "./options.ts";

const identifier = /^[A-Za-z_$][A-Za-z0-9_$]*$/;
const maxIdentifierLength = 128;

/**
 * Names that cannot be methods. A client is an object of functions: it may be awaited (`then`), printed (`toJSON`), and
 * used as any object (whatever `Object.prototype` has, and `prototype`).
 */
function isReserved(name: string): boolean {
  return name === "then" || name === "toJSON" || name === "prototype" || name in Object.prototype;
}

/** @throws TypeError when `options` is not an object, or has an unknown field. */
export function assertOptions(where: string, options: object, known: readonly string[]): void {
  if (typeof options !== "object" || options === null)
    throw new TypeError(`${where}: options must be an object`);
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) {
      throw new TypeError(`${where}: unknown option "${name}"; known are ${known.join(", ")}`);
    }
  }
}

/** @throws TypeError when the name is not an identifier of at most 128 characters, or is reserved. */
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

/** @throws TypeError when the value is not a number of milliseconds above 0 that a timer can hold. */
export function assertTimeoutMs(where: string, value: unknown): void {
  if (typeof value !== "number" || !(value > 0 && value <= maxTimeoutMs)) {
    throw new TypeError(
      `${where} must be a number of milliseconds above 0, at most ${maxTimeoutMs}, it is ${shown(value)}`,
    );
  }
}
