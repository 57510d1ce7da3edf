// A service as it is deployed: its addresses come from the environment, an orchestrator asks it by HTTP whether it
// serves, and SIGTERM ends it without losing a call. Run it with `node build/examples/deploy/server.js`.
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout } from "node:timers/promises";
import { closeOnSignals, Engine, implement, service, unary } from "cinnabar";
import { z } from "zod";

const Reports = service("reports.v1", {
  build: unary({ input: z.object({ delayMs: z.int().min(0).max(10_000) }), output: z.string() }),
});
const reports = implement(Reports, {
  async build({ delayMs }, call) {
    await setTimeout(delayMs, undefined, { signal: call.signal });
    return "the report";
  },
});

const engine = await Engine.open({
  listen: (process.env.LISTEN ?? "tcp://0.0.0.0:7400").split(" "),
  serve: [reports],
  logger: console,
});
const probe = createServer((_, response) => {
  const status = engine.health.of()?.status ?? "closed";
  response.writeHead(status === "serving" ? 200 : 503).end(`${status}\n`);
});
probe.listen(Number(process.env.PROBE_PORT ?? 9464));
await once(probe, "listening");
probe.unref(); // the engine keeps the process alive, until it has drained
closeOnSignals(engine, { graceMs: 20_000 });
console.log(`listening at ${engine.urls.join(" ")}, probe at port ${(probe.address() as AddressInfo).port}`);
