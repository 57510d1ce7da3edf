// One engine, and one way for its thread to end. The test looks at the exit code, stderr and what is left behind.
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { type Client, Engine } from "cinnabar";
import { settings, tell } from "./commands.ts";
import { serveTrial } from "./serve-trial.ts";
import { Trial } from "./trial.ts";

/** What is going on when the end comes, and how it comes. */
export interface TeardownSettings {
  /** The server that is called. */
  readonly url: string;
  readonly thread: "main" | "worker" | "both" | "pair";
  /** An address of its own to listen at. Default: connect only. */
  readonly listen?: string;
  readonly during: "nothing" | "call" | "bulk" | "pooled" | "overflow";
  readonly heartbeatMs?: number;
  readonly end: "close" | "leave" | "exit" | "throw" | "reject" | "terminate" | "wait" | "handler";
}

/** Not forgotten, however long it takes. */
const taken: Disposable[] = [];

const role = isMainThread ? undefined : (workerData as TeardownSettings & { readonly peer?: string });
const plan = role ?? settings<TeardownSettings>();

if (!isMainThread) await live(plan);
else if (plan.thread === "main") await live(plan);
else if (plan.thread === "pair") await pair(plan);
else {
  const engine = plan.thread === "both" ? await Engine.open() : undefined;
  const held = engine && call((await engine.connect(plan.url)).client(Trial), "call");
  await run(plan);
  if (plan.thread === "both") {
    // What happened on the other thread is nothing to this one's engine, and its call is still open.
    held?.catch(() => {});
    const trial = (await engine?.connect(plan.url))?.client(Trial);
    tell("unaffected", { token: (await trial?.echo({ token: "main" }))?.token });
    await engine?.close();
  } else {
    // Nor to one that is opened afterwards.
    await using later = await Engine.open();
    tell("unaffected", {
      token: (await (await later.connect(plan.url)).client(Trial).echo({ token: "main" })).token,
    });
  }
}

/** A thread's whole life. */
async function live({ url, listen, during, end, heartbeatMs = 10_000 }: TeardownSettings): Promise<void> {
  const engine = await Engine.open({
    ...(listen === undefined ? {} : { listen }),
    heartbeatMs,
    serve: [serveTrial(() => "")],
  });
  const peer = role?.peer;
  const trial = (await engine.connect(peer ?? url)).client(Trial, { timeoutMs: 60_000 });
  await trial.echo({ token: "first" });
  if (end === "handler") {
    process.on("SIGTERM", async () => {
      await engine.close();
      process.disconnect();
    });
  }
  const open = call(trial, during, engine).catch(() => {});
  await underWay(trial, during, engine);
  if (isMainThread) tell("ready");
  else parentPort?.postMessage(engine.urls);
  switch (end) {
    case "close":
      await engine.close();
      await open;
      return;
    case "leave":
    case "handler":
      return;
    case "exit":
      process.exit(7);
      break;
    case "throw":
      setImmediate(() => {
        throw new Error("on purpose");
      });
      break;
    case "reject":
      Promise.reject(new Error("on purpose"));
  }
  // Ended from outside, or by what was just set off; the bound is for a test that failed.
  await delay(30_000);
}

/** Starts what is to be under way; its promise ends with the engine. */
function call(
  trial: Client<typeof Trial>,
  during: TeardownSettings["during"],
  engine?: Engine,
): Promise<unknown> {
  const size = 8 * 1024 * 1024;
  switch (during) {
    case "nothing":
      return Promise.resolve();
    case "call":
      return trial.hold({ key: "teardown" });
    case "bulk":
      return trial.fill({ into: (engine as Engine).expose(new Uint8Array(size), { access: "write" }) });
    case "pooled": {
      // In pages of the addon's own, which end with the thread.
      const memory = (engine as Engine).pool.take(size, { access: "write" });
      taken.push(memory);
      return trial.fill({ into: memory.region });
    }
    case "overflow":
      return Promise.all(
        [1, 2, 3].map((i) =>
          again(() => (i % 2 ? trial.download({ bytes: size }) : trial.upload(new Uint8Array(size)))),
        ),
      );
  }
}

async function again(act: () => Promise<unknown>): Promise<void> {
  for (;;) await act();
}

async function underWay(
  trial: Client<typeof Trial>,
  during: TeardownSettings["during"],
  engine: Engine,
): Promise<void> {
  if (during === "overflow") {
    while (engine.stats().pullingBytes === 0) await new Promise(setImmediate);
  } else if (during !== "nothing") {
    // Served after what was sent before it.
    await trial.echo({ token: "second" });
  }
}

/** Runs `live` in a worker, ends it if the plan says so, and tells how it ended. */
async function run(data: TeardownSettings & { readonly peer?: string }): Promise<void> {
  const worker = new Worker(fileURLToPath(import.meta.url), { workerData: data });
  worker.on("message", () => {
    if (data.end === "terminate") void worker.terminate();
    tell("ready");
  });
  worker.on("error", (error) => tell("thrown", { message: error.message }));
  const status = await new Promise((resolve) => worker.once("exit", resolve));
  tell("worker ended", { status });
}

/** Two workers, the second calls the first, which goes on listening until it is terminated. */
async function pair({ url, listen = "", during, end }: TeardownSettings): Promise<void> {
  const first = new Worker(fileURLToPath(import.meta.url), {
    workerData: { url, listen, thread: "worker", during: "nothing", end: "wait" } satisfies TeardownSettings,
  });
  const ended = new Promise((resolve) => first.once("exit", resolve));
  const urls = await new Promise<string[]>((resolve) => first.once("message", resolve));
  await run({ url, thread: "worker", during, end, peer: urls[0] ?? "" });
  await first.terminate();
  tell("worker ended", { status: await ended });
}
