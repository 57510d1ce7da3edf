import { Engine, implement } from "cinnabar";
import { heartbeatMs } from "../bulk/contract.ts";
import { cpuUs } from "../echo/usage.ts";
import type { Party } from "../suite/child.ts";
import { Rows } from "./contract.ts";

/** A process that sends rows back. */
export interface RowServer extends Party {
  url(): Promise<string>;
  /** Processor time that the process has used since it started, with the threads of zlib. */
  cpuUs(): Promise<number>;
}

export async function open(listen: string): Promise<RowServer> {
  const engine = await Engine.open({
    listen,
    heartbeatMs,
    serve: [implement(Rows, { echo: (rows) => rows })],
  });
  return {
    url: async () => engine.urls[0] ?? "",
    cpuUs: async () => cpuUs(),
    close: () => engine.close(),
  };
}
