import { service, unary } from "cinnabar";
import { z } from "zod";

const place = z.object({ lane: z.union([z.int(), z.literal("dispatcher")]), who: z.string() });

/** What tests ask of a service that runs in lanes with `security`. */
export const Guarded = service("guarded.v1", {
  /** Which lane answers, and which caller. */
  whoami: unary({ output: place, idempotent: true }),
  /** For the administrator alone, by `allow`. */
  reset: unary({ output: place }),
  /** For those that show the token, by `authorize`. */
  pay: unary({ output: place }),
  /** Which names are in the `workerData` of the lane's thread. */
  workerData: unary({ output: z.array(z.string()) }),
  /** Ends the lane's thread. */
  die: unary(),
});
