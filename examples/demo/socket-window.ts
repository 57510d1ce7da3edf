import { once } from "node:events";
import { connect } from "node:net";
import { unreadable } from "./socket-server.ts";
import { bytesOf, maxPieces, type OpenWindow, type PieceResult, windowBytes } from "./window.ts";

/**
 * Windows that are read into from a socket of node:net, straight where the bytes belong, which is the fastest way it
 * has. socket-server.ts has the form of requests and answers.
 */
export function socketWindows(url: string): OpenWindow {
  const [, path] = /^net\+unix:(.*)$/.exec(url) ?? [];
  const where =
    path !== undefined ? { path } : { host: new URL(url).hostname, port: Number(new URL(url).port) };
  return async () => {
    const memory = new Uint8Array(windowBytes + maxPieces * Int32Array.BYTES_PER_ELEMENT);
    let wanted = 0;
    let filled = 0;
    let settle: ((isWhole: boolean) => void) | undefined;
    const socket = connect({
      ...where,
      onread: {
        // Asked for before a request is made: what comes next then begins at the start.
        buffer: () => (filled < wanted ? memory.subarray(filled, wanted) : memory),
        callback(read) {
          filled += read;
          if (filled >= wanted) settle?.(true);
          return true;
        },
      },
    });
    await once(socket, "connect");
    socket.setNoDelay(true);
    socket.on("error", () => {}); // "close" follows
    socket.on("close", () => settle?.(false));

    return {
      memory,
      async pull(pieces, signal) {
        const bytes = bytesOf(pieces);
        wanted = bytes + pieces.length * Int32Array.BYTES_PER_ELEMENT;
        filled = 0;
        signal.throwIfAborted();
        const end = () => socket.destroy();
        signal.addEventListener("abort", end, { once: true });
        const isWhole = await new Promise<boolean>((resolve) => {
          settle = resolve;
          if (socket.destroyed) resolve(false);
          else socket.write(`${JSON.stringify(pieces)}\n`);
        });
        signal.removeEventListener("abort", end);
        signal.throwIfAborted();
        if (!isWhole) throw new Error("the server ended the connection");
        const counts = new DataView(memory.buffer, bytes);
        return pieces.map((_, index) =>
          resultOf(counts.getInt32(index * Int32Array.BYTES_PER_ELEMENT, true)),
        );
      },
      async [Symbol.asyncDispose]() {
        socket.destroy();
      },
    };
  };
}

function resultOf(count: number): PieceResult {
  return count === unreadable ? { bytes: 0, problem: "the server could not read it" } : { bytes: count };
}
