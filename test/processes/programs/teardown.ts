// One engine, and one way for its thread to end. The test looks at the exit code, stderr and what is left behind.
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { type Client, Engine } from "cinnabar";
import { obey, settings, tell } from "./commands.ts";
import { serveTrial } from "./serve-trial.ts";
import { Trial } from "./trial.ts";

/** What is going on when the end comes, and how it comes. */
export interface TeardownPlan {
  /** The server that is called. */
  readonly url: string;
  /** An address of its own to listen at. Default: connect only. */
  readonly listen?: string;
  readonly during: "nothing" | "call" | "bulk" | "pooled" | "overflow";
  readonly heartbeatMs?: number;
  readonly end: "close" | "leave" | "exit" | "throw" | "reject" | "terminate" | "wait" | "handler";
}

/** The plan of a worker. `peer` is the URL that it calls instead. */
export type WorkerPlan = TeardownPlan & { readonly peer?: string };

/** `main`: the plan is the process's own. `host`: its workers have plans, which they get by commands. */
export type TeardownSettings = (TeardownPlan & { readonly thread: "main" }) | { readonly thread: "host" };

/** Not forgotten, however long it takes. */
const taken: Disposable[] = [];

/** How a worker, or two, came to their end, and what the main thread's own engine was answered afterwards. */
export interface WorkersEnded {
  readonly statuses: readonly number[];
  /** The messages of what the workers threw. */
  readonly thrown: readonly string[];
  readonly token?: string;
}

const role = isMainThread ? undefined : (workerData as WorkerPlan);
const settled = role === undefined ? settings<TeardownSettings>() : { ...role, thread: "main" as const };

if (settled.thread === "main") await live(settled);
else {
  obey({
    /** A worker; then an engine that is opened afterwards. */
    async worker(plan: WorkerPlan): Promise<WorkersEnded> {
      const ended = await run(plan);
      await using later = await Engine.open();
      const trial = (await later.connect(plan.url)).client(Trial);
      return { ...ended, token: (await trial.echo({ token: "main" })).token };
    },
    /** A worker beside an engine of the main thread, whose call is open all the time. */
    async beside(plan: WorkerPlan): Promise<WorkersEnded> {
      await using engine = await Engine.open();
      call((await engine.connect(plan.url)).client(Trial), "call").catch(() => {});
      const ended = await run(plan);
      const trial = (await engine.connect(plan.url)).client(Trial);
      return { ...ended, token: (await trial.echo({ token: "main" })).token };
    },
    pair,
    exit: () => void setImmediate(() => process.disconnect()),
  });
}

/** A thread's whole life. */
async function live({ url, listen, during, end, heartbeatMs = 10_000 }: TeardownPlan): Promise<void> {
  const engine = await Engine.open({
    ...(listen === undefined ? {} : { listen }),
    heartbeatMs,
    // Under sanitizers, with other tests beside, a new thread's connect has taken more than the default of 5 s.
    connectTimeoutMs: 20_000,
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
  during: TeardownPlan["during"],
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
  during: TeardownPlan["during"],
  engine: Engine,
): Promise<void> {
  if (during === "overflow") {
    while (engine.stats().pullingBytes === 0) await new Promise(setImmediate);
  } else if (during !== "nothing") {
    // Served after what was sent before it.
    await trial.echo({ token: "second" });
  }
}

/** Runs `live` in a worker, and ends it if the plan says so. */
async function run(data: WorkerPlan): Promise<WorkersEnded> {
  const worker = new Worker(fileURLToPath(import.meta.url), { workerData: data });
  const thrown: string[] = [];
  worker.on("message", () => {
    if (data.end === "terminate") void worker.terminate();
    tell("ready");
  });
  worker.on("error", (error) => thrown.push(error.message));
  const status = await new Promise<number>((resolve) => worker.once("exit", resolve));
  return { statuses: [status], thrown };
}

/** Two workers, the second calls the first, which goes on listening until it is terminated. */
async function pair({ url, listen = "", during, end }: WorkerPlan): Promise<WorkersEnded> {
  const first = new Worker(fileURLToPath(import.meta.url), {
    workerData: { url, listen, during: "nothing", end: "wait" } satisfies WorkerPlan,
  });
  const firstEnded = new Promise<number>((resolve) => first.once("exit", resolve));
  const urls = await new Promise<string[]>((resolve) => first.once("message", resolve));
  const { statuses, thrown } = await run({ url, during, end, peer: urls[0] ?? "" });
  await first.terminate();
  return { statuses: [...statuses, await firstEnded], thrown };
}
