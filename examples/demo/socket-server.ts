import { once } from "node:events";
import { open } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Catalog } from "./catalog.ts";
import { pieceBytes } from "./file-server.ts";

/** The catalog served by node:net, for comparison: where, by the scheme of Cinnabar's that does the same. */
export interface Sockets extends AsyncDisposable {
  readonly urls: { readonly shm: string; readonly tcp: string };
}

interface Request {
  readonly path: string;
  readonly offset: number;
  readonly length: number;
}

/**
 * Serves the same files from the same process by plain sockets; reads the disk in the same pieces, one being read while
 * one is being written.
 */
export async function serveSockets(catalog: Catalog): Promise<Sockets> {
  const connections = new Set<Socket>();
  const listen = async (where: string | { port: number; host: string }): Promise<Server> => {
    const server = createServer({ noDelay: true }, (socket) => {
      connections.add(socket);
      socket.on("error", () => {}); // a client that has seen enough
      socket.on("close", () => connections.delete(socket));
      void answerAll(socket, catalog);
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

async function answerAll(socket: Socket, catalog: Catalog): Promise<void> {
  const pair = new Uint8Array(2 * pieceBytes);
  try {
    for await (const line of createInterface({ input: socket })) {
      await answer(socket, catalog, JSON.parse(line), pair);
    }
  } catch {
    socket.destroy(); // which tells the client that the bytes will not come
  }
}

async function answer(
  socket: Socket,
  catalog: Catalog,
  { path, offset, length }: Request,
  pair: Uint8Array,
): Promise<void> {
  if (!catalog.byPath.has(path)) throw new Error(`there is no ${path}`);
  const file = await open(join(catalog.root, path));
  try {
    let written = Promise.resolve();
    for (let done = 0, half = 0; done < length; half = 1 - half) {
      const wanted = Math.min(pieceBytes, length - done);
      const piece = pair.subarray(half * pieceBytes, half * pieceBytes + wanted);
      const { bytesRead } = await file.read(piece, 0, wanted, offset + done);
      await written;
      if (bytesRead === 0) throw new Error(`${path} has become shorter`);
      written = write(socket, piece.subarray(0, bytesRead));
      written.catch(() => {}); // awaited later; without this a failure in the meantime would be an unhandled one
      done += bytesRead;
    }
    await written;
  } finally {
    await file.close();
  }
}

function write(socket: Socket, bytes: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.write(bytes, (error) => (error == null ? resolve() : reject(error)));
  });
}
