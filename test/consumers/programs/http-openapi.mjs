// Prints methods as OpenAPI 3.1: a schema that contains itself, declared errors that share a status, a stream.
import { error, serverStream, service, unary } from "cinnabar";
import { openApi } from "cinnabar-http";
import { z } from "zod";

/** @type {z.ZodType<unknown>} */
const tree = z.lazy(() => z.object({ name: z.string(), children: z.array(tree).optional() }));
const Trees = service("trees/v1", {
  grow: unary({
    input: z.object({ root: tree, big: z.bigint().meta({ examples: ["12"] }), at: z.date() }),
    output: tree,
    errors: {
      Dry: error({ data: z.object({ litres: z.number() }), code: "unavailable" }),
      Cold: error({ code: "unavailable" }),
    },
  }),
  rings: serverStream({ output: z.object({ year: z.int() }) }),
  ping: unary(),
});
const allow = ["trees/v1/grow", "trees/v1/rings", "trees/v1/ping"];
const safe = ["trees/v1/grow"];
console.log(JSON.stringify(openApi({ services: [Trees], allow, safe, title: "Trees", version: "1.0.0" })));
