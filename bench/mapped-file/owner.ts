import { once } from "node:events";
import { createReadStream } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Engine, handle, implement, service, unary } from "cinnabar";
import { z } from "zod";
import { heartbeatMs } from "../bulk/contract.ts";
import type { Party } from "../suite/child.ts";

/** What the owner of the file offers over Cinnabar. */
export const FileOwner = service("bench.mapped-file.v1", {
  share: unary({ input: z.object({}), output: handle("read") }),
});

/** How much of the file is asked for, or read from the disk, at a time. */
export const pieceBytes = 1 << 20;

/** A process that has a file. */
export interface Owner extends Party {
  address(): Promise<string>;
}

/** `where`: the URL for Cinnabar, "tcp" or "unix" for node:net. */
export async function open(where: string, path: string): Promise<Owner> {
  return where.includes("://") ? withCinnabar(where, path) : withNet(where, path);
}

async function withCinnabar(listen: string, path: string): Promise<Owner> {
  const owner = implement(FileOwner, { share: () => file.share({ leaseMs: 3_600_000 }) });
  const engine = await Engine.open({ heartbeatMs, listen, serve: [owner] });
  const file = await engine.mapFile(path, { access: "read", writable: false });
  return { address: async () => engine.urls[0] ?? "", close: () => engine.close() };
}

/** Each connection gets the file. */
async function withNet(transport: string, path: string): Promise<Owner> {
  const server = createServer({ noDelay: true }, (socket) => {
    socket.on("error", () => {});
    createReadStream(path, { highWaterMark: pieceBytes }).pipe(socket);
  });
  if (transport === "unix") server.listen(join(tmpdir(), `cinnabar-bench-file-${process.pid}.sock`));
  else server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const bound = server.address();
  const address = typeof bound === "string" ? { path: bound } : { host: "127.0.0.1", port: bound?.port };
  return {
    address: async () => JSON.stringify(address),
    async close() {
      server.close();
    },
  };
}
