import { bulk, service, unary } from "cinnabar";
import { z } from "zod";

const path = z.string().max(4096);
const errors = {
  NotFound: z.object({ path }),
  Unreadable: z.object({ path, why: z.string() }),
};

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
    errors,
    idempotent: true,
  }),

  /**
   * Writes up to `length` bytes of a file, from `offset` on, into the caller's memory, in as many writes. Fewer means
   * that the file ended.
   */
  pull: unary({
    input: z.object({ path, offset: z.int().min(0), length: z.int().min(0), into: bulk("write") }),
    output: z.object({ bytes: z.int(), writes: z.int() }),
    errors,
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
