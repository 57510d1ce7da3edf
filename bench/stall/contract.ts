import { handle, service, unary } from "cinnabar";
import { z } from "zod";

/** What the peer of a process asks of it whose thread it keeps busy. */
export const Stall = service("bench.stall.v1", {
  /** Two pieces of memory of that process, of so many bytes. */
  share: unary({
    input: z.object({ bytes: z.int() }),
    output: z.object({ written: handle("write"), read: handle("read") }),
  }),
  /**
   * Computes for so long. The last word of `written` before and after, and how far the first word of `read` was counted
   * up meanwhile.
   */
  stall: unary({
    input: z.object({ ms: z.int() }),
    output: z.object({ first: z.int(), last: z.int(), counted: z.int() }),
    timeoutMs: 60_000,
  }),
});
