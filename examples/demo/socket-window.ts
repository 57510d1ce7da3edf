import { once } from "node:events";
import { connect, type Socket } from "node:net";
import type { OpenWindow, Pulled } from "./window.ts";

/**
 * Windows that are read into from a socket of node:net, straight where the bytes belong, which is the fastest way it
 * has. A request is a line of JSON, the answer nothing but the bytes asked for; a server that does not have them ends
 * the connection.
 */
export function socketWindows(url: string): OpenWindow {
  const [, path] = /^net\+unix:(.*)$/.exec(url) ?? [];
  const where =
    path !== undefined ? { path } : { host: new URL(url).hostname, port: Number(new URL(url).port) };
  return async (bytes) => {
    const memory = new Uint8Array(bytes);
    let socket: Socket | undefined;
    let wanted = 0;
    let filled = 0;
    let settle: ((pulled: Pulled) => void) | undefined;
    const finish = (pulled: Pulled) => {
      settle?.(pulled);
      settle = undefined;
    };

    const open = async (): Promise<Socket> => {
      const opening = connect({
        ...where,
        onread: {
          // Asked for before a request is made: what comes next then begins at the start.
          buffer: () => (filled < wanted ? memory.subarray(filled, wanted) : memory),
          callback(read) {
            filled += read;
            if (filled >= wanted) finish({ bytes: wanted, writes: 0 });
            return true;
          },
        },
      });
      await once(opening, "connect");
      opening.setNoDelay(true);
      opening.on("error", () => {}); // "close" follows
      opening.on("close", () => {
        socket = undefined;
        finish({ problem: "the server ended the connection" });
      });
      return opening;
    };

    return {
      memory,
      async pull(path, offset, length, signal) {
        if (length === 0) return { bytes: 0, writes: 0 };
        socket ??= await open();
        wanted = length;
        filled = 0;
        const end = () => socket?.destroy();
        signal.addEventListener("abort", end, { once: true });
        try {
          const pulled = await new Promise<Pulled>((resolve) => {
            settle = resolve;
            socket?.write(`${JSON.stringify({ path, offset, length })}\n`);
          });
          signal.throwIfAborted();
          return pulled;
        } finally {
          signal.removeEventListener("abort", end);
        }
      },
      async [Symbol.asyncDispose]() {
        socket?.destroy();
      },
    };
  };
}
