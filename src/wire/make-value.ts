import { arrayBufferNumber, DecodeError, dataViewNumber, typedArrays } from "./extension.ts";

/** Makes the values of extensions from parts that the decoder has read and checked. */

type ErrorClass = new (message: string, options: ErrorOptions) => Error;

/** Error classes by name. A Map and not an object: the name comes from a peer and must find no inherited property. */
const errorClasses = new Map<string, ErrorClass>(
  [Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError].map((Class) => [
    Class.name,
    Class,
  ]),
);

/** Makes the error of a name from a peer. */
export function makeError(name: string, message: string, cause: unknown, errors: unknown): Error {
  // A stack would show this decoder, and take longer to make than the rest of the error. `Reflect.set` does not throw
  // where the process has frozen its globals; an assignment would.
  const { stackTraceLimit } = Error;
  Reflect.set(Error, "stackTraceLimit", 0);
  try {
    const options = cause === undefined ? {} : { cause };
    const Class = errorClasses.get(name);
    if (Class !== undefined) return new Class(message, options);
    if (name === "AggregateError")
      return new AggregateError(Array.isArray(errors) ? errors : [], message, options);
    const error = new Error(message, options);
    error.name = name;
    return error;
  } finally {
    Reflect.set(Error, "stackTraceLimit", stackTraceLimit);
  }
}

/** The date of a timestamp: 1 byte for an invalid one, 4, 8 or 12. */
export function makeDate(view: DataView, start: number, size: number): Date {
  if (size === 1) return new Date(Number.NaN);
  const first = view.getUint32(start);
  if (size === 4) return new Date(first * 1000);
  if (size === 12) return new Date(Number(view.getBigInt64(start + 4)) * 1000 + first / 1_000_000);
  // 30 bits of nanoseconds, then 34 of seconds.
  const seconds = (first & 3) * 2 ** 32 + view.getUint32(start + 4);
  return new Date(seconds * 1000 + (first >>> 2) / 1_000_000);
}

/** Keys and values take turns in `parts`. */
export function makeMap(parts: readonly unknown[]): Map<unknown, unknown> {
  if (parts.length % 2 !== 0) throw new DecodeError(`map has ${parts.length} keys and values`);
  const map = new Map<unknown, unknown>();
  for (let i = 0; i < parts.length; i += 2) map.set(parts[i], parts[i + 1]);
  return map;
}

/** A typed array over `memory`, by its number in the protocol; undefined for an unknown number. */
export function makeTypedArray(number: number, memory: ArrayBuffer): object | undefined {
  if (number === arrayBufferNumber) return memory;
  if (number === dataViewNumber) return new DataView(memory);
  const Class = typedArrays[number];
  return Class && new Class(memory);
}
