import { Engine, implement } from "cinnabar";
import { Echo } from "../echo/contract.ts";
import { cpuUs } from "../echo/usage.ts";
import type { Party } from "../suite/child.ts";
import { collect, middlewareFor, type Observed } from "./observed.ts";

export interface ObservedServer extends Party {
  url(): Promise<string>;
  /** Processor time that the process has used since it started. */
  cpuUs(): Promise<number>;
}

export async function open(listen: string, observed: Observed): Promise<ObservedServer> {
  const engine = await Engine.open({
    listen,
    serve: [implement(Echo, { echo: (input) => input })],
    middleware: middlewareFor(observed),
  });
  const stop = collect(observed, engine);
  return {
    url: async () => engine.urls[0] ?? "",
    cpuUs: async () => cpuUs(),
    async close() {
      stop();
      await engine.close();
    },
  };
}
