import { z } from "zod";
import type { Checked } from "./checks.ts";

/** A zod schema that makes a check, with its JSON Schema. */
export function zodOf<S extends z.ZodType>({ check, json }: Checked): S {
  // On z.unknown() and not z.custom(), which has no JSON Schema.
  const schema = z
    .unknown()
    .superRefine((value, context) => {
      const fault = check(value);
      if (fault !== undefined) context.addIssue({ code: "custom", message: fault });
    })
    .meta({ ...json });
  // A check cannot tell TypeScript the type that it makes sure of. Regions and streams also change their type on the
  // wire, between the two validations, which no schema does.
  return schema as z.ZodType<unknown, unknown> as S;
}
