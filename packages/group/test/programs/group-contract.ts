import { service, unary } from "cinnabar";
import { z } from "zod";

export const Standing = service("standing.v1", {
  /** The id of the process that answers. */
  who: unary({ output: z.number(), idempotent: true }),
  /** Ends with its call. */
  hold: unary(),
});
