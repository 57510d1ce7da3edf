/** Methods of Buffer that its type lacks: UTF-8 without the look-up of an encoding in `toString` and `write`. */
export interface Utf8Buffer extends Buffer {
  utf8Slice(start: number, end: number): string;
  /** How many bytes it wrote; whole characters only. */
  utf8Write(text: string, offset: number, maxBytes: number): number;
}

/** A Buffer with its DataView beside it, made on demand. */
export type BufferWithView = Buffer & { dataView?: DataView };

export function viewOf(bytes: BufferWithView): DataView {
  return (bytes.dataView ??= new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength));
}
