import { patterned } from "../bulk/slots.ts";

/** A piece whose bytes tell whether they stand in their place. */
export function patternedPiece(bytes: number): Uint8Array {
  return patterned(new Uint8Array(bytes), 1, 0);
}

/** The same piece again and again, for a time, and at least once. */
export function* pieces(piece: Uint8Array, durationMs: number): Generator<Uint8Array> {
  const untilMs = performance.now() + durationMs;
  do yield piece;
  while (performance.now() < untilMs);
}

/** Reads so many bytes, whatever pieces they come in, into one buffer. */
export async function readExactly(
  next: () => Promise<Uint8Array | undefined>,
  into: Uint8Array,
): Promise<void> {
  for (let filled = 0; filled < into.byteLength; ) {
    const part = await next();
    if (part === undefined) throw new Error(`the stream ended after ${filled} of ${into.byteLength} bytes`);
    into.set(part, filled);
    filled += part.byteLength;
  }
}
