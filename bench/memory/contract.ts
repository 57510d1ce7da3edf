import { serverStream, service, unary } from "cinnabar";
import { z } from "zod";

const message = z.object({ id: z.int(), name: z.string(), text: z.string() });

/** Calls that stay pending, and streams that stay without an item. */
export const Hold = service("bench.hold.v1", {
  hold: unary({ input: message }),
  watch: serverStream({ output: message }),
});

/** More requests in flight at one server than are ever asked for. */
export const limits = {
  maxRequests: 1_040_000,
  // Simulated peers of one engine are one peer, which may have a quarter of the sessions.
  maxSessions: 80_000,
};
