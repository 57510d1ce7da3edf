import type { IncomingMessage, ServerResponse } from "node:http";
import type { HttpHandler } from "./handler.ts";
import { toNodeHandler } from "./node.ts";

/** What the plugin needs of an instance of Fastify 5. */
export interface FastifyLike {
  removeAllContentTypeParsers(): void;
  addContentTypeParser(
    type: string,
    parser: (request: unknown, payload: unknown, done: (error: null, body?: unknown) => void) => void,
  ): unknown;
  all(
    path: string,
    handler: (
      request: { readonly raw: IncomingMessage },
      reply: { hijack(): unknown; readonly raw: ServerResponse },
    ) => void,
  ): unknown;
}

/**
 * Makes a plugin of Fastify 5 that answers each path below `prefix` of `register`. Give `httpHandler` the same `prefix`.
 * Fastify's own parsers do not run for these requests, and hooks do not see the answers.
 *
 * @example
 * const handler = httpHandler({ services: [greeter], allow: ["greeter.v1/greet"], prefix: "/api" });
 * await fastify.register(fastifyPlugin(handler), { prefix: "/api" });
 */
export function fastifyPlugin(handler: HttpHandler): (fastify: FastifyLike) => Promise<void> {
  const serve = toNodeHandler(handler);
  return async (fastify) => {
    // A parser would read the body, and answer for itself.
    fastify.removeAllContentTypeParsers();
    fastify.addContentTypeParser("*", (_request, payload, done) => done(null, payload));
    fastify.all("/*", ({ raw }, reply) => {
      reply.hijack();
      serve(raw, reply.raw);
    });
  };
}
