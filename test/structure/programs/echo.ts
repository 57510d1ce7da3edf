import { Session } from "node:inspector/promises";
import { Engine, implement, service, unary } from "cinnabar";
import { z } from "zod";
import { SpinPolicy } from "../../../src/fabric/spin-policy.ts";
import type { Entered, Order, Said } from "../support/call-functions.ts";

/**
 * One side of many small calls. It counts how often each function of this file's bundle is entered while they run. The
 * first argument is the URL of the server; `listen` and a URL make this process the server.
 */

const Item = z.object({ id: z.number(), name: z.string(), text: z.string() });
const Echo = service("echo.v1", { echo: unary({ input: Item, output: Item }) });
const item = { id: 1, name: "abc", text: "x".repeat(64) };

// Who else uses the processors decides whether an engine polls or blocks. It blocks here from its first account on, as
// beside others, so that each run enters the same functions.
SpinPolicy.prototype.account = function block(this: SpinPolicy, lostUs, caught) {
  this.lostUs = lostUs;
  this.caught = caught;
  this.blocksUntilMs = Number.POSITIVE_INFINITY;
};

const profiler = new Session();
profiler.connect();
await profiler.post("Profiler.enable");
const [first = "", url = ""] = process.argv.slice(2);
if (first === "listen") await serve(url);
else await call(first);

async function serve(at: string): Promise<void> {
  const engine = await Engine.open({ listen: at, serve: [implement(Echo, { echo: (value) => value })] });
  process.on("message", (order: Order) => void follow(order));
  say({ kind: "listening", url: engine.urls[0] ?? "" });
}

async function call(server: string): Promise<void> {
  const engine = await Engine.open();
  const client = (await engine.connect(server)).client(Echo);
  process.on("message", async (order: Order) => {
    if (order.kind !== "call") return void follow(order);
    for (let made = 0; made < order.calls; made += 1) await client.echo(item);
    say({ kind: "called" });
  });
  say({ kind: "connected" });
}

async function follow(order: Order): Promise<void> {
  if (order.kind === "count") {
    await profiler.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
    return say({ kind: "counting" });
  }
  const { result } = await profiler.post("Profiler.takePreciseCoverage");
  const functions: Entered[] = result
    .filter((script) => script.url === import.meta.url)
    .flatMap((script) => script.functions)
    .map(({ functionName, ranges: [range] }) => ({
      name: functionName,
      offset: range?.startOffset ?? 0,
      times: range?.count ?? 0,
    }));
  say({ kind: "counted", functions });
}

function say(said: Said): void {
  process.send?.(said);
}
