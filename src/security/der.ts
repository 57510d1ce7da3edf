/** A value in DER, the encoding of X.509: its tag, and the offsets of its content. */
export interface DerValue {
  readonly tag: number;
  /** Offset of the whole value; then of its content, and of its end. */
  readonly from: number;
  readonly start: number;
  readonly end: number;
}

export const derTag = { integer: 0x02, sequence: 0x30, utcTime: 0x17, generalizedTime: 0x18 } as const;

/** The values that follow each other between two offsets. @throws TypeError when they are cut off. */
export function* derValues(bytes: Uint8Array, start = 0, end = bytes.byteLength): Generator<DerValue> {
  for (let at = start; at < end; ) {
    const value = derValueAt(bytes, at, end);
    yield value;
    at = value.end;
  }
}

/** The values in a value. */
export const derMembers = (bytes: Uint8Array, { start, end }: DerValue): Generator<DerValue> =>
  derValues(bytes, start, end);

function derValueAt(bytes: Uint8Array, from: number, end: number): DerValue {
  const short = byteAt(bytes, from + 1, end);
  let start = from + 2;
  let length = short;
  if (short > 0x7f) {
    length = 0;
    for (let left = short & 0x7f; left > 0; left--) length = length * 256 + byteAt(bytes, start++, end);
  }
  if (start + length > end) throw cutOff();
  return { tag: bytes[from] as number, from, start, end: start + length };
}

function byteAt(bytes: Uint8Array, at: number, end: number): number {
  if (at >= end) throw cutOff();
  return bytes[at] as number;
}

const cutOff = (): TypeError => new TypeError("a value in DER is cut off");
