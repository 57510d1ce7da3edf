// Serves streams, and reads those of others, as its test tells it.
import { setTimeout as delay } from "node:timers/promises";
import { Engine, type EngineOptions, implement, RpcError } from "cinnabar";
import { engineCommands, footprint, obey, settings, tell } from "./commands.ts";
import { Flow } from "./stream-service.ts";

const options = settings<Pick<EngineOptions, "listen" | "heartbeatMs" | "limits" | "admission">>();
let worked = 0;
let failed = 0;
let mostRssBytes = 0;
const watch = setInterval(() => {
  mostRssBytes = Math.max(mostRssBytes, process.memoryUsage.rss());
}, 20).unref();

const engine: Engine = await Engine.open({
  ...options,
  onHandlerError: () => {
    failed++;
  },
  serve: [
    implement(Flow, {
      async *count({ to = Number.POSITIVE_INFINITY }, call) {
        try {
          for (let n = 0; n < to; n++) yield n;
        } finally {
          tell("ended", { aborted: call.signal.aborted });
        }
      },
      async *bulk({ bytes, piece }) {
        for (let sent = 0; sent < bytes; sent += piece) yield new Uint8Array(piece).fill(sent / piece);
      },
      async add(items, call) {
        let sum = 0;
        try {
          for await (const item of items) sum += item;
          return sum;
        } finally {
          tell("ended", { aborted: call.signal.aborted });
        }
      },
      async work({ ms }) {
        await delay(ms);
        worked++;
      },
    }),
  ],
});

obey({
  ...engineCommands(engine),
  worked: () => ({ worked, failed }),
  /** The largest this process has been since it was asked last. */
  mostRss() {
    const most = Math.max(mostRssBytes, footprint().rssBytes);
    mostRssBytes = 0;
    return most;
  },
  /** Reads a stream without end, and tells how it ends. */
  async read({ url }: { readonly url: string }) {
    const flow = (await engine.connect(url)).client(Flow);
    let items = 0;
    (async () => {
      try {
        for await (const n of flow.count({})) {
          if (n !== items) throw new Error(`${n} came instead of ${items}`);
          if (++items === 1000) tell("reading");
        }
      } catch (error) {
        tell("failed", { code: error instanceof RpcError ? error.code : String(error), items });
      }
    })();
  },
  /** Reads so many bytes, slowly, and gives what it has read. */
  async drink({
    url,
    bytes,
    piece,
    pauseMs,
  }: {
    url: string;
    bytes: number;
    piece: number;
    pauseMs: number;
  }) {
    const flow = (await engine.connect(url)).client(Flow);
    let read = 0;
    for await (const each of flow.bulk({ bytes, piece }, { idleTimeoutMs: false })) {
      if (each[0] !== ((read / piece) & 0xff)) throw new Error(`another piece than ${read / piece}`);
      read += each.byteLength;
      if (pauseMs > 0 && (read / piece) % 16 === 0) await delay(pauseMs);
    }
    return read;
  },
  done() {
    clearInterval(watch);
  },
});
tell("listening", { urls: engine.urls });
