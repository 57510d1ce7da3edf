// HTTP: the page, the orders for it and for curl, health for probes, and figures for Prometheus.
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Engine } from "cinnabar";
import { httpHandler, toNodeHandler } from "cinnabar-http";
import { component } from "cinnabar-serve";
import { z } from "zod";
import { orders } from "./orders.ts";

export const web = component({
  needs: { orders },
  config: z.object({
    host: z.string().default("127.0.0.1"),
    port: z.int().min(0).max(65_535).default(8080),
    page: z.string().default("examples/backend/page.html"),
  }),
  async start({ config, needs }) {
    const { engine, services } = needs.orders;
    const handler = httpHandler({
      services,
      allow: [
        "orders.v1/place",
        "orders.v1/watch",
        { method: "orders.v1/picture", body: "data", maxBytes: 16 << 20 },
      ],
      safe: ["orders.v1/watch"],
      prefix: "/api",
      health: () => engine.health.of()?.status === "serving",
    });
    const api = toNodeHandler(handler);
    const page = readFileSync(config.page);
    const server = createServer((request, response) => {
      const path = request.url?.split("?")[0];
      if (path === "/") response.setHeader("content-type", "text/html; charset=utf-8").end(page);
      else if (path?.startsWith("/modules/")) sendModule(path, response);
      else if (path === "/metrics")
        response.setHeader("content-type", "text/plain; version=0.0.4").end(figures(engine));
      else api(request, response);
    });
    server.listen(config.port, config.host);
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    console.log(`the page is at http://${config.host}:${port}/`);
    return {
      value: { port },
      async drain(graceMs) {
        const closed = once(server, "close");
        server.close();
        server.closeIdleConnections();
        needs.orders.endLists();
        const cut = setTimeout(() => server.closeAllConnections(), graceMs);
        await handler.close();
        // Browsers keep connections open that no request uses.
        server.closeIdleConnections();
        await closed;
        clearTimeout(cut);
      },
      async stop() {
        server.closeAllConnections();
      },
    };
  },
});

/** The folders of the packages whose modules the page imports. A bundler would make one file of all. */
const packages = new Map(
  Object.entries({ cinnabar: "cinnabar/contract", "cinnabar-http": "cinnabar-http/client", zod: "zod" }).map(
    ([name, entry]) => [name, new URL(".", import.meta.resolve(entry))],
  ),
);

/** Our own contract. Browsers read it as it is, since it names no types. */
const contract = new URL(import.meta.url.endsWith(".ts") ? "contract.ts" : "contract.js", import.meta.url);

/** Answers by a module, such as `/modules/zod/index.js`. Nothing beside these folders can be read. */
function sendModule(path: string, response: ServerResponse): void {
  const [, name = "", file = ""] = /^\/modules\/([\w-]+)\/([\w./-]+\.js)$/.exec(path) ?? [];
  const folder = packages.get(name);
  const url = path === "/modules/contract.js" ? contract : folder && new URL(file, folder);
  const isOurs = url === contract || (folder !== undefined && url?.href.startsWith(folder.href));
  if (url === undefined || !isOurs || !existsSync(url)) response.writeHead(404).end();
  else response.setHeader("content-type", "text/javascript; charset=utf-8").end(readFileSync(url));
}

/** A few figures in Prometheus's text; the package cinnabar-otel has all of them. */
function figures(engine: Engine): string {
  const rows = engine
    .stats()
    .methods.filter(({ direction }) => direction === "in")
    .map(({ method, succeeded }) => `shop_calls_succeeded_total{method="${method}"} ${succeeded}`);
  return `# TYPE shop_calls_succeeded_total counter\n${rows.join("\n")}\n`;
}
