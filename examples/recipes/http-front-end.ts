// An HTTP front end of a service: a request becomes a call, a client that goes away aborts it, and codes of errors
// become HTTP statuses. Run it with `node build/examples/recipes/http-front-end.js [url]`.
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";
import { setTimeout } from "node:timers/promises";
import { Engine, error, implement, type RpcCode, RpcError, service, unary } from "cinnabar";
import { z } from "zod";

const Reports = service("reports.v1", {
  build: unary({
    input: z.object({ year: z.int() }),
    output: z.object({ title: z.string() }),
    errors: { NotFound: error({ data: z.object({ year: z.int() }), code: "not_found" }) },
    idempotent: true,
  }),
});

const url = process.argv[2] ?? `shm://reports-${process.pid}`;
let onAborted = (): void => {};
const aborted = new Promise<void>((resolve) => {
  onAborted = resolve;
});
await using backend = await Engine.open({
  listen: url,
  serve: [
    implement(Reports, {
      async build({ year }, call) {
        if (year > 2100) return call.fail("NotFound", { year });
        // A long report stops when its caller is gone.
        if (year === 0) {
          call.signal.addEventListener("abort", onAborted, { once: true });
          await setTimeout(60_000, undefined, { signal: call.signal });
        }
        return { title: `Report of ${year}` };
      },
    }),
  ],
});
await using engine = await Engine.open();
const peer = await engine.connect(backend.urls[0] ?? url, { reconnect: { whileLost: "wait" } });
const reports = peer.client(Reports, { timeoutMs: 10_000, retry: {} });

const statuses: Partial<Record<RpcCode, number>> = {
  invalid_argument: 400,
  unauthenticated: 401,
  permission_denied: 403,
  not_found: 404,
  resource_exhausted: 429,
  unimplemented: 501,
  unavailable: 503,
  deadline_exceeded: 504,
};

const front = createServer((request, response) => {
  const gone = new AbortController();
  // "close" also comes after an answer that was sent: to abort an ended call does nothing.
  response.once("close", () => gone.abort());
  answer(request, response, gone.signal).catch((error: unknown) => response.destroy(error as Error));
});

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  signal: AbortSignal,
): Promise<void> {
  try {
    const input = (await json(request)) as { year: number }; // the client validates it
    send(response, 200, await reports.build(input, { signal }));
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof SyntaxError) return send(response, 400, { error: "the body is no JSON" });
    if (!(error instanceof RpcError)) throw error;
    if (error.retryAfterMs !== undefined)
      response.setHeader("retry-after", Math.ceil(error.retryAfterMs / 1000));
    send(response, statuses[error.code] ?? 500, { error: error.reason ?? error.code });
  }
}

function send(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}

front.listen(0, "127.0.0.1");
await once(front, "listening");
const address = `http://127.0.0.1:${(front.address() as AddressInfo).port}/`;

const ask = (body: string, signal?: AbortSignal) =>
  fetch(address, { method: "POST", body, ...(signal && { signal }) });
for (const body of ['{ "year": 2026 }', '{ "year": 3000 }', '{ "year": "now" }', "{"]) {
  const response = await ask(body);
  console.log(response.status, await response.text());
}

const impatient = new AbortController();
const slow = ask('{ "year": 0 }', impatient.signal).catch((error: Error) => error.name);
while (backend.stats().calls.in === 0) await setTimeout(1);
impatient.abort();
console.log(await slow);
await aborted;
console.log("the handler was told");
front.close();
front.closeAllConnections();
