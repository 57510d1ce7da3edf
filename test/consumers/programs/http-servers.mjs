// @ts-nocheck The packages of others that it needs are installed beside the packages under test.
// The servers that people have take the handler: Fastify, Express and Hono, each beside routes of its own.
import { createServer } from "node:http";
import { serve } from "@hono/node-server";
import { implement, service, unary } from "cinnabar";
import { fastifyPlugin, httpHandler, toNodeHandler } from "cinnabar-http";
import { httpClient } from "cinnabar-http/client";
import express from "express";
import Fastify from "fastify";
import { Hono } from "hono";
import { z } from "zod";

const Work = service("work.v1", {
  echo: unary({ input: z.object({ text: z.string() }), output: z.object({ text: z.string() }) }),
  wait: unary(),
});
const waits = { begun: () => {}, stopped: 0, allStopped: () => {} };
const allStopped = new Promise((resolve) => {
  waits.allStopped = resolve;
});
const handler = httpHandler({
  services: [
    implement(Work, {
      echo: ({ text }) => ({ text }),
      wait: (_, call) =>
        new Promise((_resolve, reject) => {
          call.signal.addEventListener("abort", () => {
            if (++waits.stopped === 3) waits.allStopped();
            reject(call.signal.reason);
          });
          waits.begun();
        }),
    }),
  ],
  allow: ["work.v1/echo", "work.v1/wait"],
  prefix: "/api",
});

const own = { own: true };
const fastify = Fastify();
fastify.post("/own", async () => own);
await fastify.register(fastifyPlugin(handler), { prefix: "/api" });
const app = express();
app.use((request, response, next) =>
  request.path.startsWith("/api/") ? toNodeHandler(handler)(request, response) : next(),
);
app.use(express.json());
app.post("/own", (_request, response) => response.json(own));
const hono = new Hono();
hono.post("/own", (c) => c.json(own));
hono.all("/api/*", (c) => handler(c.req.raw));

await fastify.listen({ port: 0, host: "127.0.0.1" });
const expressServer = createServer(app);
await new Promise((resolve) => expressServer.listen(0, "127.0.0.1", resolve));
const honoServer = await new Promise((resolve) => {
  const server = serve({ fetch: hono.fetch, port: 0, hostname: "127.0.0.1" }, () => resolve(server));
});
const servers = { fastify: fastify.server, express: expressServer, hono: honoServer };
for (const [name, server] of Object.entries(servers)) {
  const base = `http://127.0.0.1:${server.address().port}`;
  const work = httpClient(Work, { url: `${base}/api` });
  const text = "x".repeat(200_000);
  const isWhole = (await work.echo({ text })).text === text;
  const stop = new AbortController();
  waits.begun = () => stop.abort();
  const waiting = work.wait({ signal: stop.signal }).catch((error) => error.code);
  const json = { method: "POST", headers: { "content-type": "application/json" }, body: "{}" };
  const ownAnswer = await (await fetch(`${base}/own`, json)).json();
  const missing = (await fetch(`${base}/api/none`, json)).status;
  console.log(name, isWhole, await waiting, ownAnswer.own, missing);
}
await allStopped;
await fastify.close();
for (const server of [expressServer, honoServer]) server.close().closeAllConnections();
await handler.close();
console.log("closed");
