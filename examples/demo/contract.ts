import { bulk, service, unary } from "cinnabar";
import { z } from "zod";
import { maxPieces, windowBytes } from "./window.ts";

const path = z.string().max(4096);
const piece = z.object({ path, offset: z.int().min(0), length: z.int().min(0) });

/** A folder of files, read from afar: small calls find them, one-sided writes carry them. */
export const Files = service("files.v1", {
  /**
   * One page of the catalog, from entry number `from` on. `next` is where the next page starts, null after the last.
   */
  list: unary({
    input: z.object({ from: z.int().min(0), limit: z.int().min(1).max(1000) }),
    output: z.object({
      files: z.array(z.object({ path, bytes: z.int() })),
      next: z.int().nullable(),
    }),
    idempotent: true,
  }),

  /** What the catalog knows of one file. Answered from memory, so it is also the demo's small call. */
  stat: unary({
    input: z.object({ path }),
    output: z.object({ bytes: z.int(), modifiedMs: z.number() }),
    errors: { NotFound: z.object({ path }) },
    idempotent: true,
  }),

  /**
   * Writes pieces of files into the caller's memory, one behind the other, in a single write: many small files cost one
   * call. Each piece takes the length that was asked for; `results` has its bytes, or why it could not be read.
   */
  pull: unary({
    input: z.object({
      pieces: z.array(piece).max(maxPieces),
      into: bulk("write", { maxBytes: windowBytes }),
    }),
    output: z.object({
      results: z.array(z.object({ bytes: z.int(), problem: z.string().optional() })),
    }),
    errors: { NotFound: z.object({ path }), TooMuch: z.object({ bytes: z.int(), maxBytes: z.int() }) },
    idempotent: true,
  }),

  /**
   * How much the server's large writes carried since the last time it was asked, and for how long at least one was
   * under way.
   */
  meter: unary({
    input: z.object({}),
    output: z.object({ bytes: z.int(), busyMs: z.number() }),
  }),
});
