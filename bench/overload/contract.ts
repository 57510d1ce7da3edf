import { service, unary } from "cinnabar";
import { z } from "zod";

/** How a call spends its time at the server. */
export type Work = "wait" | "compute";

/** What is asked of a server that has less to give. */
export const Overload = service("bench.overload.v1", {
  /** Waits for so long as for a database, or computes for so long on the only thread. */
  work: unary({
    input: z.object({ kind: z.enum(["wait", "compute"]), ms: z.number(), padding: z.string() }),
    output: z.object({ ok: z.boolean() }),
  }),
});
