import { handle, service, unary } from "cinnabar";
import { bulkStream } from "cinnabar-bulk";
import { z } from "zod";

/** What the processes of the memory tests ask of each other. */
export const Memory = service("memory.v1", {
  /** A handle on memory of this process. */
  share: unary({ input: z.object({ bytes: z.int(), value: z.int() }), output: handle("read_write") }),
  /**
   * Keeps the thread of this process from anything else, and looks meanwhile at the memory that was shared first, whose
   * last word a peer counts up, and counts up the first word of what was shared second. The first and the last of what
   * it saw, and how far it counted.
   */
  stall: unary({
    input: z.object({ ms: z.int() }),
    output: z.object({ first: z.int(), last: z.int(), counted: z.int() }),
    timeoutMs: 60_000,
  }),
  /** Borrows the region from its owner and reads it, once or until that fails. `code` is that of the failure. */
  pull: unary({
    input: z.object({ from: handle("read"), forEver: z.boolean() }),
    output: z.object({ code: z.string(), sum: z.number() }),
    timeoutMs: 60_000,
  }),
  /** Writes what comes into a file. */
  store: unary({
    input: z.object({ path: z.string(), data: bulkStream("read") }),
    output: z.object({ bytes: z.number(), crc: z.number(), peakBytes: z.number() }),
    timeoutMs: 600_000,
  }),
});
