// A server that keeps whatever it is sent: its limits alone bound it.
import { readFileSync } from "node:fs";
import { Engine, type EngineOptions, implement } from "cinnabar";
import { engineCommands, obey, settings, tell } from "./commands.ts";
import { Hoard } from "./hoard.ts";

let release = () => {};
const released = new Promise<void>((resolve) => {
  release = resolve;
});
const kept = new Set<unknown>();

const engine = await Engine.open({
  ...settings<Pick<EngineOptions, "listen" | "heartbeatMs" | "limits">>(),
  serve: [
    implement(Hoard, {
      async keep(input, call) {
        const both = [input, [...call.metadata]];
        kept.add(both);
        await released;
        kept.delete(both);
      },
      async take(items) {
        await released;
        let sum = 0;
        for await (const { byteLength } of items) sum += byteLength;
        return sum;
      },
      give: (length) => new Uint8Array(length),
      echo: (text) => text,
    }),
  ],
});

obey({
  ...engineCommands(engine),
  release,
  limits: () => engine.limits,
  /** The most memory that was ever resident, in bytes. */
  peakBytes: () => Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync("/proc/self/status", "utf8"))?.[1]) * 1024,
});
tell("listening", { urls: engine.urls });
