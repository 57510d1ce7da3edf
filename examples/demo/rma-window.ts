import type { Engine } from "cinnabar";
import type { FilesClient } from "./client.ts";
import type { OpenWindow } from "./window.ts";

/** Windows that the server writes into by itself, one-sided: registered memory, lent to each pull. */
export function rmaWindows(engine: Engine, client: FilesClient): OpenWindow {
  return async (bytes) => {
    const memory = new Uint8Array(bytes);
    const region = engine.expose(memory, { access: "write" });
    return {
      memory,
      async pull(path, offset, length, signal) {
        const result = await client.pull.result({ path, offset, length, into: region }, { signal });
        if (result.ok) return result.value;
        // What the contract declares concerns this file, anything else all of them.
        if (result.error.reason === undefined) throw result.error;
        return { problem: result.error.message };
      },
      async [Symbol.asyncDispose]() {
        region.dispose();
      },
    };
  };
}
