import { once } from "node:events";
import { isMainThread, parentPort, Worker } from "node:worker_threads";
import { cpuUs } from "../../echo/usage.ts";
import { runLanes } from "../lanes.ts";
import type { Driver } from "../party.ts";
import { holds, Slots } from "../slots.ts";

interface Sent {
  readonly lane: number;
  readonly verify: boolean;
  readonly buffer: ArrayBuffer;
}

/**
 * Sends buffers to a worker thread by `postMessage`, without a transfer list: the way a copy goes from thread to
 * thread.
 */
export async function open(): Promise<Driver> {
  const worker = new Worker(new URL(import.meta.url));
  await once(worker, "online");
  let buffers: ArrayBuffer[] = [];
  const waiting: ((isRight: boolean) => void)[] = [];
  worker.on("message", (isRight: boolean) => waiting.shift()?.(isRight));

  const send = async (lane: number, verify: boolean) => {
    const index = lane % buffers.length;
    const sent = { lane: index, verify, buffer: buffers[index] } as Sent;
    const answer = new Promise<boolean>((resolve) => waiting.push(resolve));
    worker.postMessage(sent);
    if (!(await answer)) throw new Error("the worker got something else than what was sent");
  };

  return {
    async prepare(bytes, lanes) {
      const slots = new Slots(bytes, lanes);
      slots.fill(1);
      buffers = Array.from({ length: slots.count }, (_, lane) => slots.slot(lane).slice().buffer);
      for (let lane = 0; lane < buffers.length; lane++) await send(lane, true);
    },
    measure: (_, inFlight, durationMs) => runLanes(inFlight, { durationMs }, (lane) => send(lane, false)),
    address: async () => "",
    cpuUs: async () => cpuUs(),
    async close() {
      await worker.terminate();
    },
  };
}

if (!isMainThread) {
  parentPort?.on("message", ({ lane, verify, buffer }: Sent) => {
    parentPort?.postMessage(verify ? holds(new Uint8Array(buffer), 1, lane) : true);
  });
}
