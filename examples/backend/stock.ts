// The stock: one replica of a service that others call.
import { Engine, implement } from "cinnabar";
import { component } from "cinnabar-serve";
import { z } from "zod";
import { Stock } from "./contract.ts";
import { secured } from "./security.ts";

/** A replica; `name` stands in its answers. Each has its own goods. */
export const stock = (name: string, listen: string) =>
  component({
    config: z.object({
      listen: z.string().default(listen),
      pieces: z.int().default(100),
      keys: z.string().optional(),
    }),
    async start({ config }) {
      const goods = new Map<string, number>();
      const implementation = implement(Stock, {
        take({ item, pieces }, call) {
          const left = goods.get(item) ?? config.pieces;
          if (left < pieces) return call.fail("SoldOut", { left });
          goods.set(item, left - pieces);
          return { left: left - pieces, by: name };
        },
      });
      const engine = await Engine.open({
        listen: config.listen,
        serve: [implementation],
        ...secured(config.keys, "stock"),
      });
      return { value: engine, drain: (graceMs) => engine.drain({ graceMs }), stop: () => engine.close() };
    },
  });
