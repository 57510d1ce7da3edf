// Makes certificates with the command line, opens a sealed session with them over tcp, and calls. Prints who was there.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Engine, implement, service, unary } from "cinnabar";
import { z } from "zod";

const Who = service("who.v1", { ask: unary({ output: z.string() }) });

/** @param {string} folder @param {string} name */
function securityOf(folder, name) {
  const read = (/** @type {string} */ file) => readFileSync(join(folder, file));
  return { tls: { cert: read(`${name}.pem`), key: read(`${name}.key`), ca: read("ca.pem") } };
}

async function main() {
  const [, , folder = ""] = process.argv;
  const timeoutMs = 60_000;
  const server = await Engine.open({
    listen: "tcp://127.0.0.1:0",
    security: securityOf(folder, "server"),
    serve: [
      implement(Who, {
        ask: (_, { identity }) => (identity?.kind === "certificate" ? identity.name : "nobody"),
      }),
    ],
  });
  const engine = await Engine.open({ security: securityOf(folder, "client") });
  const [url = ""] = server.urls;
  const peer = await engine.connect(url, { name: "server.example", timeoutMs });
  const named = peer.identity?.kind === "certificate" ? peer.identity.name : "nobody";
  console.log(`${await peer.client(Who, { timeoutMs }).ask()} asked ${named}`);
  await engine.close();
  await server.close();
}

main();
