// A worker: it connects to the orders and prints labels when it is called. It listens nowhere.
import { Engine, implement } from "cinnabar";
import { component } from "cinnabar-serve";
import { z } from "zod";
import { Printer, Printers } from "./contract.ts";
import { secured, shopName } from "./security.ts";

export const worker = component({
  config: z.object({
    orders: z.string().default("tcp://127.0.0.1:7410"),
    name: z.string().default("printer"),
    keys: z.string().optional(),
  }),
  async start({ config }) {
    const engine = await Engine.open(secured(config.keys, "worker"));
    const printer = implement(Printer, { print: ({ id, text }) => `#${id} ${text}, by ${config.name}` });
    const options = { serve: [printer], ...(config.keys === undefined ? {} : { name: shopName }) };
    try {
      const peer = await engine.connect(config.orders, options);
      const join = () => peer.client(Printers).join({ name: config.name });
      // A server that has restarted does not know its workers.
      peer.on("connected", () => void join().catch(() => {}));
      await join();
      return { value: peer, stop: () => engine.close() };
    } catch (error) {
      await engine.close();
      throw error;
    }
  },
});
