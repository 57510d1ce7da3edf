// The orders: a service that calls the stock's replicas, and workers that have connected to it.
import { Engine, type Implementation, implement, RpcError, type SessionPeer } from "cinnabar";
import { component } from "cinnabar-serve";
import { z } from "zod";
import { type Order, Orders, Printer, Printers, Stock } from "./contract.ts";
import { secured, shopName } from "./security.ts";

type Placed = z.infer<typeof Order>;

/** What other components need of the orders. */
export interface OrdersHost {
  readonly engine: Engine;
  readonly orders: Implementation;
  /** Ends the open lists: they last as long as their readers, and would hold up a drain. */
  endLists(): void;
}

export const orders = component({
  config: z.object({
    listen: z.string().default("tcp://127.0.0.1:7410"),
    stock: z.array(z.string()).default(["tcp://127.0.0.1:7401", "tcp://127.0.0.1:7402"]),
    keys: z.string().optional(),
  }),
  async start({ config }): Promise<{
    value: OrdersHost;
    drain(graceMs: number): Promise<unknown>;
    stop(): Promise<void>;
  }> {
    const placed: Placed[] = [];
    const watchers = new Set<(order: Placed) => void>();
    const printers: SessionPeer[] = [];
    const closing = new AbortController();

    const engine = await Engine.open({
      listen: config.listen,
      ...secured(config.keys, "orders"),
    });
    const security = config.keys === undefined ? {} : { name: shopName };
    /** A component that does not start leaves nothing open. */
    const closeAfter = async (failure: unknown): Promise<never> => {
      await engine.close();
      throw failure;
    };
    const replicas = await engine.connect(config.stock, security).catch(closeAfter);
    const stock = replicas.client(Stock, { timeoutMs: 2_000, retry: { attempts: 2 } });

    /** Asks the next worker for a label. An order does not wait for a worker that is not there. */
    async function label({ id, item }: Placed): Promise<string | undefined> {
      const printer = printers.shift();
      if (printer === undefined) return undefined;
      printers.push(printer);
      try {
        return await printer.client(Printer, { timeoutMs: 1_000 }).print({ id, text: item });
      } catch (error) {
        if (error instanceof RpcError) return undefined;
        throw error;
      }
    }

    const implementation = implement(Orders, {
      async place({ item, pieces }, call) {
        const taken = await stock.take.result({ item, pieces });
        if (!taken.ok) {
          if (taken.error.reason === "SoldOut") return call.fail("SoldOut", taken.error.data);
          throw taken.error;
        }
        const order: Placed = { id: placed.length + 1, item, pieces };
        placed.push(order);
        const printed = await label(order);
        if (printed !== undefined) order.label = printed;
        for (const send of watchers) send(order);
        return order;
      },
      async *watch(_, { signal }) {
        const waiting = placed.slice(-100);
        let wake = () => {};
        const send = (order: Placed) => {
          waiting.push(order);
          // A page that does not read keeps the newest thousand.
          if (waiting.length > 1_000) waiting.shift();
          wake();
        };
        const end = AbortSignal.any([signal, closing.signal]);
        end.addEventListener("abort", () => wake(), { once: true });
        watchers.add(send);
        try {
          while (!end.aborted) {
            yield* waiting.splice(0);
            if (waiting.length > 0 || end.aborted) continue;
            await new Promise<void>((resolve) => {
              wake = resolve;
            });
          }
        } finally {
          watchers.delete(send);
        }
      },
      picture: ({ data }) => ({ bytes: data.byteLength }),
    });
    const desk = implement(Printers, {
      join: (_, { caller }) => {
        printers.push(caller);
      },
    });
    engine.on("sessionEnded", ({ peer }) => {
      const at = printers.indexOf(peer as SessionPeer);
      if (at >= 0) printers.splice(at, 1);
    });
    await engine.serve(implementation, desk);
    return {
      value: { engine, orders: implementation, endLists: () => closing.abort() },
      drain(graceMs) {
        closing.abort();
        return engine.drain({ graceMs });
      },
      stop: () => engine.close(),
    };
  },
});
