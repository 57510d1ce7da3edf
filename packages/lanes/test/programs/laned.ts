import { bulk, service, unary } from "cinnabar";
import { z } from "zod";

const place = z.object({ lane: z.union([z.int(), z.literal("dispatcher")]), thread: z.int() });

/** What tests ask of a service that runs in lanes. */
export const Laned = service("laned.v1", {
  /** Which lane answers. */
  where: unary({ input: z.object({ key: z.string().optional() }), output: place, idempotent: true }),
  /** The same, after a while. */
  later: unary({ input: z.object({ ms: z.number() }), output: place, idempotent: true }),
  /** The same, and must not be executed twice. */
  once: unary({ input: z.object({ ms: z.number() }), output: place }),
  /** Keeps the lane's thread busy. */
  compute: unary({ input: z.object({ us: z.number() }), output: place }),
  /** Writes the region again and again until the call ends. */
  fill: unary({ input: z.object({ into: bulk("write") }) }),
  /** Ends the lane's thread, each in its way. */
  die: unary({ input: z.object({ how: z.enum(["throw", "exit", "memory"]) }) }),
  /** Says that the lane does not serve, as its health. */
  rest: unary({ output: place }),
  /** Never lets go of the lane's thread. */
  loop: unary(),
});
