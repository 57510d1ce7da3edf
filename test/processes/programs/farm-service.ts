import type { SecurityOptions } from "cinnabar";
import { bulk, bytes, RpcError, serverStream, service, unary } from "cinnabar";
import { z } from "zod";

/** What those who connect to the farm serve there. */
export const Worker = service("worker.v1", {
  double: unary({ input: z.number(), output: z.number() }),
  left: unary({ output: z.number() }),
  hang: unary({}),
  count: serverStream({ output: z.number() }),
  fill: unary({ input: z.object({ from: bulk("read"), to: bulk("write") }) }),
  long: unary({ input: bytes(), output: z.number() }),
});

export const Farm = service("farm.v1", {
  /** Doubles 21 by the caller, and gives how much time the caller had left for it. */
  join: unary({ input: z.string(), output: z.object({ doubled: z.number(), leftMs: z.number() }) }),
  /** Calls the caller, which does not answer. */
  wait: unary({}),
});

export interface FarmSettings {
  readonly url: string;
  readonly name?: string;
  readonly sealed?: boolean;
  readonly heartbeatMs?: number;
  readonly maxRequests?: number;
}

export function optionsOf({ sealed, heartbeatMs = 1000, maxRequests }: FarmSettings) {
  const psk = { identity: "farm", key: Buffer.from("a key of tests: everybody can read it".repeat(2)) };
  const security: SecurityOptions = { psk, shm: "tls" };
  return {
    heartbeatMs,
    ...(sealed ? { security } : {}),
    ...(maxRequests === undefined ? {} : { limits: { maxRequests } }),
  };
}

/** How a call ended, as a report can say it. */
export async function ending(call: Promise<unknown>): Promise<object> {
  try {
    return { value: await call };
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    return { code: error.code, notExecuted: error.notExecuted === true, message: error.message };
  }
}
