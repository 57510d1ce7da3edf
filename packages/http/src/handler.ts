import type { HttpAnswer, HttpRequest } from "./exchange.ts";
import { type HttpOptions, resolveHttpOptions } from "./options.ts";
import { HttpServer } from "./server.ts";

/** Answers requests of HTTP by calls of services. Made by `httpHandler`. */
export interface HttpHandler extends AsyncDisposable {
  /** Answers one request. It never rejects. */
  (request: Request): Promise<Response>;
  /**
   * Refuses further requests, lets the open calls of the implementations end, and closes their engine. Peers stay
   * open: they are their owners'.
   */
  close(): Promise<void>;
}

const servers = new WeakMap<HttpHandler, HttpServer>();

/** The handler's work without the classes of fetch. @throws TypeError for anything else. */
export function serverOf(where: string, handler: HttpHandler): HttpServer {
  const server = servers.get(handler);
  if (server === undefined) throw new TypeError(`${where}: the first argument must be made by httpHandler()`);
  return server;
}

/**
 * Makes services reachable by HTTP, in Connect's protocol with JSON: `POST /greeter.v1/greet` with the input as
 * `application/json`. The result takes a `Request` and gives a `Response`, as Hono, Next, Bun and Deno want it.
 * `toNodeHandler` makes a listener for `node:http` of it.
 *
 * Only the methods that `allow` names can be called, and by default only from pages of the same origin and from
 * programs. There is no authentication here: list `authorization` in `requestHeaders`, and check it in the service's
 * middleware.
 *
 * @throws TypeError or RangeError for bad options, a name that is no method, and a method that has no form in HTTP.
 *
 * @example
 * const handler = httpHandler({
 *   services: [greeter, { service: Files, peer }],
 *   allow: ["greeter.v1/greet", "files.v1/stat"],
 *   safe: ["files.v1/stat"],
 * });
 * export default { fetch: handler };
 */
export function httpHandler(options: HttpOptions): HttpHandler {
  const server = new HttpServer(resolveHttpOptions(options));
  const close = () => server.close();
  const handler: HttpHandler = Object.assign(
    async (request: Request): Promise<Response> => {
      const { status, headers, body } = await server.answer(requestOf(request));
      return new Response(request.method === "HEAD" ? discarded(body) : bodyOf(body), {
        status,
        headers: headers.map(([name, value]): [string, string] => [name, value]),
      });
    },
    { close, [Symbol.asyncDispose]: close },
  );
  servers.set(handler, server);
  return handler;
}

function requestOf({ method, url, headers, body, signal }: Request): HttpRequest {
  const { pathname, search } = new URL(url);
  return {
    ...{ method, path: pathname, query: search.slice(1), signal, address: undefined, isHttp1: false },
    body: () => body?.getReader(),
    header: (name) => headers.get(name) ?? undefined,
  };
}

function bodyOf(
  body: HttpAnswer["body"],
): ReadableStream<Uint8Array> | string | Uint8Array<ArrayBuffer> | null {
  if (body === undefined || typeof body === "string") return body ?? null;
  if (body instanceof Uint8Array) return body as Uint8Array<ArrayBuffer>;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const bytes = await body.next();
        if (bytes === undefined) controller.close();
        else controller.enqueue(bytes);
      },
      cancel: () => body.cancel(),
    },
    // An item is made when the client reads it.
    { highWaterMark: 0 },
  );
}

function discarded(body: HttpAnswer["body"]): null {
  if (typeof body === "object" && !(body instanceof Uint8Array)) body.cancel();
  return null;
}
