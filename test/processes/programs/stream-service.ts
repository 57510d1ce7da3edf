import { bytes, clientStream, oneWay, serverStream, service } from "cinnabar";
import { z } from "zod";

/** What the tests of streams ask each other's processes for. */
export const Flow = service("flow.v1", {
  /** So many numbers; without end where there is no bound. */
  count: serverStream({ input: z.object({ to: z.int().optional() }), output: z.int() }),
  /** So many bytes, in pieces. */
  bulk: serverStream({ input: z.object({ bytes: z.int(), piece: z.int() }), output: bytes() }),
  add: clientStream({ items: z.int(), output: z.int() }),
  /** Keeps a handler for so long. */
  work: oneWay({ input: z.object({ ms: z.number() }) }),
});
