// What the parts of the shop promise each other. The page in the browser uses the same names over HTTP.
import { bytes, error, serverStream, service, unary } from "cinnabar/contract";
import { z } from "zod";

export const Order = z.object({
  id: z.int(),
  item: z.string(),
  pieces: z.int(),
  label: z.string().optional(),
});

export const Stock = service("stock.v1", {
  take: unary({
    input: z.object({ item: z.string(), pieces: z.int().positive() }),
    output: z.object({ left: z.int(), by: z.string() }),
    errors: { SoldOut: error({ data: z.object({ left: z.int() }), code: "failed_precondition" }) },
  }),
});

export const Orders = service("orders.v1", {
  place: unary({
    input: z.object({ item: z.string().min(1).max(64), pieces: z.int().min(1).max(1_000) }),
    output: Order,
    errors: { SoldOut: error({ data: z.object({ left: z.int() }), code: "failed_precondition" }) },
  }),
  /** The orders that there are, and each new one. */
  watch: serverStream({ output: Order, idleTimeoutMs: false }),
  /** A picture of the goods: its length is the answer. */
  picture: unary({
    input: z.object({ name: z.string().max(64), data: bytes({ maxBytes: 16 << 20 }) }),
    output: z.object({ bytes: z.int() }),
  }),
});

/** Workers connect and wait to be called: they listen nowhere. */
export const Printers = service("printers.v1", { join: unary({ input: z.object({ name: z.string() }) }) });
export const Printer = service("printer.v1", {
  print: unary({ input: z.object({ id: z.int(), text: z.string() }), output: z.string() }),
});
