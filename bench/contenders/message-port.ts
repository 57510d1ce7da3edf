import { once } from "node:events";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import type { Contender } from "./contender.ts";
import type { SmallObject } from "./payloads.ts";
import { Waiting } from "./waiting.ts";

const role = "bench echo worker";

/**
 * `postMessage` to a worker thread and back, by structured clone. The server is a thread of the client's process: there
 * is no other way.
 */
export function messagePort(): Contender {
  return {
    async connect() {
      const worker = new Worker(new URL(import.meta.url), { workerData: role });
      await once(worker, "online");
      const waiting = new Waiting<unknown>();
      worker.on("message", ({ id, message }) => waiting.answer(id, message));
      const call = (message: unknown) => waiting.call((id) => worker.postMessage({ id, message }));
      return {
        echo: (message) => call(message) as Promise<SmallObject>,
        bytes: (bytes) => call(bytes) as Promise<Uint8Array>,
        close: async () => void (await worker.terminate()),
      };
    },
  };
}

if (!isMainThread && workerData === role)
  parentPort?.on("message", (message) => parentPort?.postMessage(message));
