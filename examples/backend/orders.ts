// The orders: a service that calls the stock's replicas, and workers that have connected to it.
import { type Client, Engine, type Implementation, implement, RpcError, type SessionPeer } from "cinnabar";
import { component } from "cinnabar-serve";
import { z } from "zod";
import { type Order, Orders, Printer, Printers, Stock } from "./contract.ts";
import { secured, shopName } from "./security.ts";

type Placed = z.infer<typeof Order>;

/** What other components need of the orders. */
export interface OrdersHost {
  readonly engine: Engine;
  readonly services: readonly Implementation[];
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

    const service = (stock: Client<typeof Stock>) =>
      implement(Orders, {
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
    const services: Implementation[] = [];
    const engine = await Engine.open({
      listen: config.listen,
      // Before the engine listens: a worker that connects finds its service.
      async serve(engine) {
        const security = config.keys === undefined ? {} : { name: shopName };
        const peer = await engine.connect(config.stock, security);
        services.push(service(peer.client(Stock, { timeoutMs: 2_000, retry: { attempts: 2 } })));
        return [...services, desk];
      },
      ...secured(config.keys, "orders"),
    });
    engine.on("sessionEnded", ({ peer }) => {
      const at = printers.indexOf(peer as SessionPeer);
      if (at >= 0) printers.splice(at, 1);
    });
    return {
      value: { engine, services, endLists: () => closing.abort() },
      drain(graceMs) {
        closing.abort();
        return engine.drain({ graceMs });
      },
      stop: () => engine.close(),
    };
  },
});
