/*
 * JSON as a message `google.protobuf.Struct`, which clients with Protobuf read without a schema of ours
 * (google/protobuf/struct.proto).
 */

const utf8 = new TextEncoder();

/** The bytes of an object of JSON. */
export function structOf(object: Readonly<Record<string, unknown>>): Uint8Array {
  return Uint8Array.from(fieldsOf(object));
}

function fieldsOf(object: Readonly<Record<string, unknown>>): number[] {
  return Object.entries(object).flatMap(([key, value]) =>
    delimited(1, [...delimited(1, [...utf8.encode(key)]), ...delimited(2, valueMessage(value))]),
  );
}

/** A `google.protobuf.Value`. */
function valueMessage(value: unknown): number[] {
  switch (typeof value) {
    case "number":
      return [tag(2, 1), ...new Uint8Array(new Float64Array([value]).buffer)];
    case "string":
      return delimited(3, [...utf8.encode(value)]);
    case "boolean":
      return [tag(4, 0), value ? 1 : 0];
    default:
      if (typeof value !== "object" || value === null) return [tag(1, 0), 0];
      return Array.isArray(value)
        ? delimited(
            6,
            value.flatMap((item) => delimited(1, valueMessage(item))),
          )
        : delimited(5, fieldsOf(value as Readonly<Record<string, unknown>>));
  }
}

const tag = (field: number, wireType: number): number => (field << 3) | wireType;

/** A field whose bytes have their length in front. */
function delimited(field: number, bytes: readonly number[]): number[] {
  return [tag(field, 2), ...varint(bytes.length), ...bytes];
}

function varint(value: number): number[] {
  const bytes: number[] = [];
  for (let left = value; ; left >>>= 7) {
    if (left < 0x80) return [...bytes, left];
    bytes.push((left & 0x7f) | 0x80);
  }
}
