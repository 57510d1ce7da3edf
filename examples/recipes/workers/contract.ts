import { service, unary } from "cinnabar";
import { z } from "zod";

export const Primes = service("primes.v1", {
  count: unary({
    input: z.object({ below: z.int().positive().max(10_000_000) }),
    output: z.object({ primes: z.int(), lane: z.string() }),
    idempotent: true,
  }),
});
