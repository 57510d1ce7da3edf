import type { Engine } from "cinnabar";
import type { FilesClient } from "./client.ts";
import { type OpenWindow, windowBytes } from "./window.ts";

/** Windows that the server writes into by itself, one-sided: memory from the engine's pool, lent to each pull. */
export function rmaWindows(engine: Engine, client: FilesClient): OpenWindow {
  return async () => {
    const memory = engine.pool.take(windowBytes, { access: "write" });
    return {
      memory: memory.bytes,
      async pull(pieces, signal) {
        const { results } = await client.pull({ pieces, into: memory.region }, { signal });
        return results;
      },
      async [Symbol.asyncDispose]() {
        memory.dispose();
      },
    };
  };
}
