// The module of lanes, as `openLanes` loads it into each of their threads.
import { setTimeout as delay } from "node:timers/promises";
import { threadId } from "node:worker_threads";
import { type Engine, implement } from "cinnabar";
import type { LaneContext, LaneServices } from "cinnabar-lanes";
import { Laned } from "./laned.ts";

export default async function services({ lane, data }: LaneContext): Promise<LaneServices> {
  const { failsIn, hangsIn, closed, broken } = (data ?? {}) as {
    readonly failsIn?: number;
    readonly hangsIn?: number | "dispatcher";
    readonly closed?: SharedArrayBuffer;
    readonly broken?: SharedArrayBuffer;
  };
  if (broken !== undefined && new Int32Array(broken)[0] === 1) throw new Error("broken on purpose");
  if (lane === failsIn) throw new Error("on purpose");
  // A thread with nothing to wait for would end; the process with the dispatcher is to end.
  if (lane === hangsIn)
    await new Promise(() => {
      const waiting = setInterval(() => {}, 1000);
      if (lane === "dispatcher") waiting.unref();
    });
  let own: Engine | undefined;
  const here = { lane, thread: threadId };
  const laned = implement(Laned, {
    where: () => here,
    later: ({ ms }) => delay(ms, here),
    once: ({ ms }) => delay(ms, here),
    compute({ us }) {
      for (const until = performance.now() + us / 1000; performance.now() < until; );
      return here;
    },
    async fill({ into }, call) {
      const source = new Uint8Array(into.byteLength).fill(0xf1);
      for (;;) await call.put(source, into);
    },
    die({ how }) {
      setImmediate(end[how]);
      return new Promise(() => {});
    },
    rest() {
      own?.health.set("laned.v1", "not_serving", { reason: "it rests" });
      return here;
    },
    loop() {
      for (;;);
    },
  });
  return {
    serve(engine) {
      own = engine as Engine;
      return [laned];
    },
    close() {
      if (closed !== undefined) Atomics.add(new Int32Array(closed), 0, 1);
    },
  };
}

const end = {
  throw() {
    throw new Error("on purpose");
  },
  exit: () => process.exit(3),
  memory() {
    for (const kept: number[][] = []; ; ) kept.push(new Array(100_000).fill(kept.length));
  },
};
