import { oneWay, serverStream, service, unary } from "cinnabar";
import { z } from "zod";

const item = z.object({ id: z.int(), name: z.string(), text: z.string() });

/** What is measured of streams and one-way calls: the small object, validated at both ends. */
export const Items = service("bench.items.v1", {
  watch: serverStream({ output: item }),
  note: oneWay({ input: item }),
  echo: unary({ input: item, output: item }),
});
