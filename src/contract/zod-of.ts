import { z } from "zod";
import type { Check } from "./checks.ts";

/** A zod schema that makes a check, with this JSON Schema. */
export function zodOf<S extends z.ZodType>(check: Check, meta: Record<string, unknown>): S {
  // On z.unknown() and not z.custom(), which has no JSON Schema.
  const schema = z
    .unknown()
    .superRefine((value, context) => {
      const fault = check(value);
      if (fault !== undefined) context.addIssue({ code: "custom", message: fault });
    })
    .meta(meta);
  // A check cannot tell TypeScript the type that it makes sure of. Regions and streams also change their type on the
  // wire, between the two validations, which no schema does.
  return schema as z.ZodType<unknown, unknown> as S;
}
