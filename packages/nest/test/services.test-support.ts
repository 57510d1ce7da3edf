import { clientStream, duplexStream, oneWay, serverStream, service, unary } from "cinnabar/standard";
import { z } from "zod";

/** A service with every kind of method. */
export const Numbers = service("numbers.v1", {
  sum: unary({ input: z.array(z.number()), output: z.number() }),
  fail: unary({ input: z.string(), output: z.string(), errors: { Refused: z.object({ why: z.string() }) } }),
  wait: unary({ input: z.number(), output: z.string() }),
  nothing: unary(),
  count: serverStream({ input: z.number(), output: z.number() }),
  total: clientStream({ input: z.string(), items: z.number(), output: z.string() }),
  doubled: duplexStream({ items: z.number(), output: z.number() }),
  note: oneWay({ input: z.string() }),
});
