// Workers of node:cluster. Each listens at the URL that the primary gives it.
import cluster from "node:cluster";
import { closeOnSignals, Engine, RpcError } from "cinnabar";
import { obey, settings, tell } from "./commands.ts";
import { serveTrial } from "./serve-trial.ts";

/** What the primary is told. */
export interface ClusterSettings {
  /** One URL for each worker. */
  readonly urls: readonly string[];
  /** Whether a worker that ends gets a successor at its URL. */
  readonly restart: boolean;
}

if (cluster.isPrimary) runPrimary(settings<ClusterSettings>());
else await runWorker(process.env.TRIAL_URL ?? "");

function runPrimary({ urls, restart }: ClusterSettings): void {
  let isStopping = false;
  const start = (url: string) => {
    const worker = cluster.fork({ TRIAL_URL: url });
    worker.on("message", ({ report, ...detail }) => tell(report, detail));
    worker.on("exit", (status, signal) => {
      tell("ended", { pid: worker.process.pid, ending: signal ?? status });
      if (restart && !isStopping) start(url);
    });
  };
  for (const url of urls) start(url);
  obey({
    stop() {
      isStopping = true;
      cluster.disconnect();
    },
  });
}

async function runWorker(url: string): Promise<void> {
  const { pid } = process;
  try {
    const engine: Engine = await Engine.open({
      listen: url,
      heartbeatMs: 2_000,
      serve: [serveTrial(() => engine.incarnation.toString(16))],
    });
    closeOnSignals(engine);
    process.once("disconnect", () => engine.drain());
    tell("listening", { pid, urls: engine.urls, life: engine.incarnation.toString(16) });
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    tell("refused", { pid, code: error.code, message: error.message });
    cluster.worker?.disconnect();
  }
}
