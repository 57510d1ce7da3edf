import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { BodySource, HttpAnswer, HttpRequest, ItemsBody } from "./exchange.ts";
import { type HttpHandler, serverOf } from "./handler.ts";
import type { HttpServer } from "./server.ts";

/** A listener for the event `request` of a server of `node:http`, `node:https` and `node:http2`. */
export type NodeHandler = (
  request: IncomingMessage | Http2ServerRequest,
  response: ServerResponse | Http2ServerResponse,
) => void;

/**
 * How long a client whose request was answered early may go on sending, in milliseconds. A connection that is closed at
 * once loses the answer on its way.
 */
const lingerMs = 1000;

/** After this silence of a stream the kernel asks whether the client is there, in milliseconds. */
const keepAliveMs = 60_000;

/**
 * Makes a listener for servers of `node:http`, `node:https` and `node:http2`. Express takes it as a middleware: mount it
 * before any body parser.
 *
 * @throws TypeError for anything that `httpHandler` has not made.
 *
 * @example
 * const handler = httpHandler({ services: [greeter], allow: ["greeter.v1/greet"] });
 * createServer(toNodeHandler(handler)).listen(8080);
 */
export function toNodeHandler(handler: HttpHandler): NodeHandler {
  const server = serverOf("toNodeHandler", handler);
  return (request, response) => {
    serve(server, request, response).catch((error: Error) => response.destroy(error));
  };
}

const ignore = () => {};

async function serve(
  server: HttpServer,
  request: IncomingMessage | Http2ServerRequest,
  response: ServerResponse | Http2ServerResponse,
): Promise<void> {
  // The response reports the same failure by "close".
  request.on("error", ignore);
  response.on("error", ignore);
  const gone = new AbortController();
  let isAnswered = false;
  // The request closes as soon as its body has been read, long before the answer. A call may go on after its answer.
  response.once("close", () => {
    if (!isAnswered) gone.abort();
  });
  if (response.destroyed) gone.abort();
  const answer = await server.answer(requestOf(request, gone.signal));
  await send(answer, request, response as ServerResponse, gone.signal, server.maxStallMs);
  isAnswered = true;
}

function requestOf(request: IncomingMessage | Http2ServerRequest, signal: AbortSignal): HttpRequest {
  const { method = "", url = "", headers } = request;
  const question = url.indexOf("?");
  const assertUnread = () => {
    if (request.readableDidRead)
      throw new Error(
        "toNodeHandler: the body has been read already; mount the handler before any body parser",
      );
  };
  return {
    ...{ method, signal, address: request.socket.remoteAddress, isHttp1: request.httpVersionMajor === 1 },
    path: question === -1 ? url : url.slice(0, question),
    query: question === -1 ? "" : url.slice(question + 1),
    header(name) {
      const value = headers[name] ?? (name === "host" ? headers[":authority"] : undefined);
      return Array.isArray(value) ? value.join(", ") : value;
    },
    whole() {
      if ("stream" in request || !request.complete) return undefined;
      assertUnread();
      return (request.read() as Buffer | null) ?? new Uint8Array();
    },
    body() {
      assertUnread();
      return new NodeBody(request);
    },
  };
}

/** The body of a request of Node. It is taken in pieces, so that what is not read yet stays with the client. */
class NodeBody implements BodySource {
  readonly #request: IncomingMessage | Http2ServerRequest;
  #hasEnded = false;
  #failure: Error | undefined;
  #wake = () => {};

  constructor(request: IncomingMessage | Http2ServerRequest) {
    this.#request = request;
    const end = (failure?: Error) => {
      this.#hasEnded = true;
      this.#failure ??= failure;
      this.#wake();
    };
    request.on("readable", () => this.#wake());
    // A client of Node that gives up over HTTP/2 sends an end before its reset. Both come together.
    if ("stream" in request) request.once("end", () => setImmediate(end));
    else request.once("end", () => end());
    request.once("error", end);
    request.once("close", () => {
      if (!this.#hasEnded) end(new Error("the request was cut off"));
    });
  }

  async read(): ReturnType<BodySource["read"]> {
    for (;;) {
      const value = this.#request.read() as Buffer | null;
      if (value !== null) return { done: false, value };
      if (this.#failure !== undefined) throw this.#failure;
      if (this.#hasEnded) return { done: true };
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  async cancel(): Promise<void> {
    this.#hasEnded = true;
    this.#wake();
  }
}

/** Both kinds of response have the same methods, but TypeScript finds no common signature. */
async function send(
  { status, headers, body }: HttpAnswer,
  request: IncomingMessage | Http2ServerRequest,
  response: ServerResponse,
  gone: AbortSignal,
  maxStallMs: number,
): Promise<void> {
  const isStream = typeof body === "object" && !(body instanceof Uint8Array);
  if (gone.aborted || (isStream && request.method === "HEAD")) {
    if (isStream) body.cancel();
    if (gone.aborted) return;
  }
  const fields: Record<string, string | string[]> = {};
  for (const [name, value] of headers) {
    const former = fields[name];
    fields[name] = former === undefined ? value : [former, value].flat();
  }
  if (body !== undefined && !isStream) fields["content-length"] = String(Buffer.byteLength(body));
  response.writeHead(status, fields);
  if (!request.complete) {
    // Over HTTP/2 the event of the response waits for the end of the request.
    const sent = "stream" in request ? request.stream : response;
    sent.once("finish", () => endRequest(request));
  }
  if (request.method === "HEAD" || body === undefined) response.end();
  else if (!isStream) response.end(body);
  else await sendItems(body, response, gone, maxStallMs);
}

/**
 * The longest piece that is written over HTTP/2 at once: one frame. It says nothing of what a client has taken of a
 * piece, so a client must take each within `maxStallMs`. Many streams share a slow connection.
 */
const http2PieceBytes = 16_384;

/** Sends items as fast as the client takes them. A client that takes nothing for `maxStallMs` is cut off. */
async function sendItems(
  body: ItemsBody,
  response: ServerResponse,
  gone: AbortSignal,
  maxStallMs: number,
): Promise<void> {
  const stop = () => body.cancel();
  const isHttp2 = "stream" in response;
  let isWaiting = false;
  // Over HTTP/2 an end without an error would be a good one.
  const onStall = () => response.destroy(new Error("the client takes nothing"));
  const formerMs = response.socket?.timeout ?? 0;
  // Node's timer begins anew with each byte that moves. A stream may be silent, but its client must take what there is.
  // Over HTTP/2 it begins anew with the bytes of other streams, too.
  if (!isHttp2)
    response.setTimeout(maxStallMs, () => {
      if (isWaiting) onStall();
    });
  // A client whose machine has gone ends nothing: the stream may be silent for ever.
  response.socket?.setKeepAlive(true, keepAliveMs);
  gone.addEventListener("abort", stop, { once: true });
  response.flushHeaders?.();
  for (;;) {
    const bytes = await body.next();
    if (gone.aborted) return;
    if (bytes === undefined) break;
    const pieceBytes = isHttp2 ? http2PieceBytes : bytes.byteLength;
    for (let at = 0; at < bytes.byteLength && !gone.aborted; at += pieceBytes) {
      isWaiting = !response.write(bytes.subarray(at, at + pieceBytes));
      if (isWaiting) await drained(response, isHttp2 ? { maxStallMs, onStall } : undefined);
      isWaiting = false;
    }
  }
  gone.removeEventListener("abort", stop);
  // Over HTTP/1 it is a timer of the connection, which would end a later request that is silent for long.
  if (!isHttp2) response.setTimeout(formerMs);
  response.end();
}

/** Waits until the client has taken what was written, or has gone away. */
function drained(
  response: ServerResponse,
  stall: { readonly maxStallMs: number; onStall(): void } | undefined,
): Promise<void> {
  return new Promise((resolve) => {
    const timer = stall === undefined ? undefined : setTimeout(stall.onStall, stall.maxStallMs);
    const done = () => {
      clearTimeout(timer);
      response.off("drain", done).off("close", done);
      resolve();
    };
    response.once("drain", done).once("close", done);
  });
}

/** Ends a request that was answered before all of it had come. What comes of it is dropped meanwhile. */
function endRequest(request: IncomingMessage | Http2ServerRequest): void {
  if (request.complete) return;
  // The request of HTTP/2 does not end its stream.
  const timer = setTimeout(
    () => ("stream" in request ? request.stream.close() : request.destroy()),
    lingerMs,
  );
  request.once("close", () => clearTimeout(timer));
  request.once("end", () => clearTimeout(timer));
  request.removeAllListeners("readable");
  request.resume();
}
