// For the installed package cinnabar-http: a service is called by HTTP.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { implement, service, unary } from "cinnabar/standard";
import { httpHandler, toNodeHandler } from "cinnabar-http";

const Hello = service("hello.v1", { hello: unary() });
const handler = httpHandler({
  services: [implement(Hello, { hello() {} })],
  allow: ["hello.v1/hello"],
});
const server = createServer(toNodeHandler(handler));
await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(undefined)));
const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
const response = await fetch(`http://127.0.0.1:${port}/hello.v1/hello`, {
  method: "POST",
  headers: { "content-type": "application/json" },
});
assert.deepEqual([response.status, await response.json()], [200, {}]);
server.close();
await handler.close();
console.log("cinnabar-http works");
