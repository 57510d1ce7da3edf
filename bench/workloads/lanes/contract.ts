import { service, unary } from "cinnabar";
import { z } from "zod";

/** Work that keeps the server's thread busy. */
export const Computing = service("computing.v1", {
  compute: unary({ input: z.object({ us: z.number() }), output: z.object({ rounds: z.number() }) }),
});
