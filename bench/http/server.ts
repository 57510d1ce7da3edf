import { once } from "node:events";
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { Engine, implement, service, unary } from "cinnabar";
import { bulkStream, readable } from "cinnabar-bulk";
import { httpHandler, toNodeHandler } from "cinnabar-http";
import { z } from "zod";
import { Echo } from "../contenders/echo_pb.ts";
import type { Party } from "../suite/child.ts";

/** A process with one server of HTTP. */
export interface HttpServer extends Party {
  port(): Promise<number>;
}

const Small = z.object({ id: z.int(), name: z.string(), text: z.string() });
const Work = service("bench.echo.v1.Echo", {
  Echo: unary({ input: Small, output: Small }),
  store: unary({ input: z.object({ data: bulkStream("read") }), output: z.object({ bytes: z.int() }) }),
});
const work = implement(Work, {
  Echo: (message) => message,
  async store({ data }, call) {
    let bytes = 0;
    for await (const piece of readable(call, data)) bytes += piece.byteLength;
    return { bytes };
  },
});

/** What answers requests by hand: it reads each body and says how long it was. */
const counting: RequestListener = (request, response) => {
  let bytes = 0;
  request.on("data", (piece: Buffer) => {
    bytes += piece.byteLength;
  });
  request.on("end", () => response.end(JSON.stringify({ bytes })));
};

async function listening(server: Server, close: () => Promise<void> = async () => {}): Promise<HttpServer> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: async () => (server.address() as AddressInfo).port,
    async close() {
      server.closeAllConnections();
      server.close();
      await close();
    },
  };
}

/** What of Fastify is used. It is no package of this workspace, so its types are not there. */
interface Fastify {
  readonly server: Server;
  post(path: string, handler: (request: { readonly body: unknown }) => Promise<unknown>): void;
  listen(at: { readonly port: number; readonly host: string }): Promise<unknown>;
  close(): Promise<void>;
}

/** Whether Fastify is installed, by hand: `npm install --no-save fastify@5.12.8`. */
export async function hasFastify(): Promise<boolean> {
  return (await fastifyModule()) !== undefined;
}

async function fastifyModule(): Promise<{ default(): Fastify } | undefined> {
  const name: string = "fastify";
  try {
    return (await import(name)) as { default(): Fastify };
  } catch {
    return undefined;
  }
}

/** Fastify, whose route calls the same service by a client of Cinnabar. */
async function byFastify(): Promise<HttpServer> {
  const fastify = ((await fastifyModule()) as { default(): Fastify }).default();
  const url = `mem://bench-http-${process.pid}`;
  const engine = await Engine.open({ listen: url, serve: [work] });
  const client = engine.lazyPeer(url).client(Work);
  fastify.post("/bench.echo.v1.Echo/Echo", ({ body }) => client.Echo(body as z.infer<typeof Small>));
  await fastify.listen({ port: 0, host: "127.0.0.1" });
  return {
    port: async () => (fastify.server.address() as AddressInfo).port,
    async close() {
      fastify.server.closeAllConnections();
      await fastify.close();
      await engine.close();
    },
  };
}

export async function open(kind: "cinnabar" | "fastify" | "connect-node" | "node"): Promise<HttpServer> {
  if (kind === "fastify") return byFastify();
  if (kind === "node") return listening(createServer(counting));
  if (kind === "connect-node") {
    const routes = connectNodeAdapter({
      routes: (router) => router.service(Echo, { echo: (message) => message }),
    });
    return listening(createServer(routes));
  }
  const handler = httpHandler({
    services: [work],
    allow: ["bench.echo.v1.Echo/Echo", { method: "bench.echo.v1.Echo/store", body: "data" }],
  });
  return listening(createServer(toNodeHandler(handler)), () => handler.close());
}
