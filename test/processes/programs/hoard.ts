import { bytes, clientStream, service, unary } from "cinnabar";
import { z } from "zod";

/** A service that keeps what it is sent until its test says `release`. */
export const Hoard = service("hoard.v1", {
  keep: unary({ input: z.unknown() }),
  /** Takes no items before `release`, and returns their bytes. */
  take: clientStream({ items: bytes(), output: z.int() }),
  give: unary({ input: z.int(), output: bytes() }),
  echo: unary({ input: z.string(), output: z.string() }),
});
