import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Catalog } from "./catalog.ts";
import type { FileReader } from "./file-reader.ts";
import { bytesOf, type Piece, windowBytes } from "./window.ts";

/** The catalog served by node:net, for comparison: where, by the scheme of Cinnabar's that does the same. */
export interface Sockets extends AsyncDisposable {
  readonly urls: { readonly shm: string; readonly tcp: string };
}

/** In place of a piece's number of bytes: it could not be read. */
export const unreadable = -1;

/**
 * Serves the same files from the same process by plain sockets. A request is a line of JSON with the pieces. The answer
 * is the bytes of all pieces, and behind them a 32-bit number for each piece: how many of its bytes are the file's.
 */
export async function serveSockets(catalog: Catalog, reader: FileReader): Promise<Sockets> {
  const connections = new Set<Socket>();
  const listen = async (where: string | { port: number; host: string }): Promise<Server> => {
    const server = createServer({ noDelay: true }, (socket) => {
      connections.add(socket);
      socket.on("error", () => {}); // a client that has seen enough
      socket.on("close", () => connections.delete(socket));
      void answerAll(socket, catalog, reader);
    });
    server.listen(where);
    await once(server, "listening");
    return server;
  };
  const path = join(tmpdir(), `cinnabar-demo-${process.pid}.sock`);
  const servers = [await listen(path), await listen({ port: 0, host: "127.0.0.1" })];
  const address = servers[1]?.address();
  return {
    urls: {
      shm: `net+unix:${path}`,
      tcp: `net+tcp://127.0.0.1:${typeof address === "object" ? address?.port : ""}`,
    },
    async [Symbol.asyncDispose]() {
      for (const server of servers) server.close();
      for (const socket of connections) socket.destroy();
    },
  };
}

async function answerAll(socket: Socket, catalog: Catalog, reader: FileReader): Promise<void> {
  const buffer = new Uint8Array(new SharedArrayBuffer(windowBytes));
  try {
    for await (const line of createInterface({ input: socket })) {
      const pieces: readonly Piece[] = JSON.parse(line);
      if (!pieces.every(({ path }) => catalog.byPath.has(path))) throw new Error("there is no such file");
      const results = await reader.read(pieces, buffer);
      const counts = Int32Array.from(results, ({ bytes, problem }) =>
        problem === undefined ? bytes : unreadable,
      );
      socket.cork();
      socket.write(buffer.subarray(0, bytesOf(pieces)));
      await write(socket, new Uint8Array(counts.buffer));
    }
  } catch {
    socket.destroy(); // so the client learns that the bytes will not come
  }
}

function write(socket: Socket, bytes: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.write(bytes, (error) => (error == null ? resolve() : reject(error)));
    socket.uncork();
  });
}
