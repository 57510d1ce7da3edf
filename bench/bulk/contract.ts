import { bulk, service, unary } from "cinnabar";
import { z } from "zod";

const op = z.enum(["get", "put"]);
const measured = z.object({ transfers: z.int(), elapsedMs: z.number() });

/**
 * Filling and comparing hundreds of megabytes is computing without a pause; it must not pass for death, on a busy
 * machine least of all.
 */
export const heartbeatMs = 60_000;

/** The server's handlers move the bytes, as they would in use; the client lends the memory. */
export const Bulk = service("bench.bulk.v1", {
  /**
   * Makes the server's memory; `fill` and `verify` name the side whose pattern goes in, or must be there, in all slots
   * or the first.
   */
  prepare: unary({
    input: z.object({
      bytes: z.int(),
      lanes: z.int(),
      fill: z.int().optional(),
      verify: z.int().optional(),
      verifyFirst: z.int().optional(),
    }),
    output: z.object({}),
  }),

  /** Many transfers in one call, so that the RMA alone is measured, by the clock of the handler. */
  run: unary({
    input: z.object({
      op,
      inFlight: z.int(),
      stretch: z.union([z.object({ durationMs: z.number() }), z.object({ transfers: z.int() })]),
      region: bulk("read_write"),
    }),
    output: measured,
  }),

  /** One transfer, into or out of all of the region. */
  move: unary({
    input: z.object({ op, lane: z.int(), region: bulk("read_write") }),
    output: z.object({}),
  }),

  /** The same bytes in a message, or in a body that is pulled when it does not fit. */
  carry: unary({ input: z.object({ body: z.instanceof(Uint8Array) }), output: z.object({}) }),

  /**
   * A small call that lends nothing, and one that lends a region nobody touches: the difference is what lending costs.
   */
  nothing: unary({ input: z.object({}), output: z.object({}) }),
  hold: unary({ input: z.object({ region: bulk("read_write") }), output: z.object({}) }),
});
