const identifier = /^[A-Za-z_$][A-Za-z0-9_$]*$/;
const maxIdentifierLength = 128;

/**
 * Names that cannot be methods. A client is an object of functions. It may be awaited (`then`), printed (`toJSON`), and
 * used like any object (all names of `Object.prototype`, and `prototype`).
 */
function isReserved(name: string): boolean {
  return name === "then" || name === "toJSON" || name === "prototype" || name in Object.prototype;
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
