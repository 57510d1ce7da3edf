import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Contender } from "./contender.ts";
import type { SmallObject } from "./payloads.ts";
import { Waiting } from "./waiting.ts";

const role = "bench-echo-child";

/**
 * The channel of `fork` with structured clones (`serialization: "advanced"`). The server is a child of the client:
 * there is no other way.
 */
export function childIpc(): Contender {
  return {
    async connect() {
      const child = fork(fileURLToPath(import.meta.url), [role], { serialization: "advanced", execArgv: [] });
      await once(child, "message");
      const waiting = new Waiting<unknown>();
      child.on("message", ({ id, message }: { id: number; message: unknown }) => waiting.answer(id, message));
      const call = (message: unknown) => waiting.call((id) => void child.send({ id, message }));
      return {
        echo: (message) => call(message) as Promise<SmallObject>,
        bytes: (bytes) => call(bytes) as Promise<Uint8Array>,
        async close() {
          child.disconnect();
          await once(child, "exit");
        },
      };
    },
  };
}

if (process.argv[2] === role) {
  process.on("message", (message) => process.send?.(message));
  process.send?.("ready");
}
