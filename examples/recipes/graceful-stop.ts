// A graceful stop of a process with an HTTP server and an engine. New requests are refused, those in flight finish,
// and whatever takes too long is aborted. Run it with `node build/examples/recipes/graceful-stop.js [url]`.
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout } from "node:timers/promises";
import { Engine, implement, service, unary } from "cinnabar";
import { z } from "zod";

const Jobs = service("jobs.v1", { run: unary({ output: z.string() }) });
let finish = (): void => {};
const finished = new Promise<void>((resolve) => {
  finish = resolve;
});
const jobs = implement(Jobs, {
  async run() {
    await finished;
    return "done";
  },
});
const url = process.argv[2] ?? `shm://jobs-${process.pid}`;
const engine = await Engine.open({ listen: url, serve: [jobs] });

// Where a load balancer asks whether to send more.
const health = createServer((_, response) => {
  response.writeHead(engine.state === "open" ? 200 : 503).end();
});
health.listen(0, "127.0.0.1");
await once(health, "listening");
const port = (health.address() as AddressInfo).port;

/**
 * The order: the health check fails first, since `drain` changes the state at once. Then calls end. What others still
 * need, as the health check and the database, is closed last.
 */
async function stop(): Promise<string> {
  const { aborted } = await engine.drain({ graceMs: 5_000 });
  health.close();
  health.closeAllConnections();
  return `stopped, ${aborted.length} calls aborted`;
}
const stopped = new Promise<string>((resolve) => process.once("SIGTERM", () => resolve(stop())));

await using other = await Engine.open();
const client = (await other.connect(engine.urls[0] ?? url)).client(Jobs);
const running = client.run();
while (engine.stats().calls.in === 0) await setTimeout(1);
process.kill(process.pid, "SIGTERM");
while (engine.state === "open") await setTimeout(1);

const late = await client.run.result();
console.log(late.ok ? "accepted" : `a new call: ${late.error.code}`);
console.log(`health: ${(await fetch(`http://127.0.0.1:${port}/`)).status}`);
finish();
console.log(`the call in flight: ${await running}`);
console.log(await stopped);
