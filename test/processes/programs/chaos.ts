import { bulk, bytes, service, unary } from "cinnabar";
import { z } from "zod";

/**
 * What servers do while they are killed, and clients ask of them. `token` is the call's own: no two calls of all
 * clients have the same.
 */
export const Chaos = service("chaos.v1", {
  /** Answers `answerTo(token)`. */
  small: unary({ input: z.object({ token: z.string() }), output: z.string() }),
  /** Gives the body back, its bytes turned. */
  long: unary({ input: z.object({ token: z.string(), body: bytes() }), output: bytes(), idempotent: true }),
  /** Puts `patternOf(token)` into the region, in pieces. */
  fill: unary({ input: z.object({ token: z.string(), into: bulk("write") }), output: z.string() }),
  /** Gets the region, and says whether it held `patternOf(token)`. */
  take: unary({
    input: z.object({ token: z.string(), from: bulk("read") }),
    output: z.boolean(),
    idempotent: true,
  }),
  /** Executed once at most, however often it is tried; answers how often this server has executed it. */
  book: unary({ input: z.object({ token: z.string() }), output: z.int(), replay: true }),
});

export const answerTo = (token: string): string => `heard ${token}`;

/** `length` bytes that no other token gives. */
export function patternOf(token: string, length: number): Buffer {
  return Buffer.alloc(length, `${token}/`);
}

/** What `long` does to a body. */
export function turned(body: Uint8Array): Buffer {
  return Buffer.from(body).reverse();
}
