/** What a Buffer has besides what its type says: UTF-8 without the choice of an encoding that its `toString` and `write` begin with. */
export interface Utf8Buffer extends Buffer {
  utf8Slice(start: number, end: number): string;
  /** How many bytes it wrote; whole characters only. */
  utf8Write(text: string, offset: number, maxBytes: number): number;
}
