import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { connect, createServer, type TLSSocket } from "node:tls";
import type { Party } from "../suite/child.ts";
import { credentials } from "./credentials.ts";

/**
 * What one would write by hand: a stream of node:tls that one side writes and the other counts, with one byte back for
 * each transfer that is all there.
 */
export interface StreamReader extends Party {
  port(): Promise<number>;
}

export interface StreamWriter extends Party {
  /** Writes transfers of so many bytes, in chunks of another size, for a time. Gives gigabytes a second. */
  measure(bytes: number, chunkBytes: number, durationMs: number): Promise<number>;
}

/** Tells the reader how long a transfer is. */
const headBytes = 8;

/** With a port it is the writer, without one the reader. */
export async function open(port?: number): Promise<StreamReader | StreamWriter> {
  return port === undefined ? reader() : writer(port);
}

async function reader(): Promise<StreamReader> {
  const { cert, key, ca } = credentials();
  const sockets = new Set<TLSSocket>();
  const options = {
    cert,
    key,
    ca,
    requestCert: true,
    rejectUnauthorized: true,
    minVersion: "TLSv1.3",
  } as const;
  const server = createServer(options, (socket) => {
    sockets.add(socket);
    socket.setNoDelay(true);
    socket.on("error", () => {});
    let transferBytes = 0;
    let left = 0;
    socket.on("data", (chunk: Buffer) => {
      let rest = chunk;
      if (transferBytes === 0) {
        transferBytes = left = Number(rest.readBigUInt64LE());
        rest = rest.subarray(headBytes);
      }
      for (left -= rest.byteLength; left <= 0; left += transferBytes) socket.write(Uint8Array.of(1));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: async () => (server.address() as AddressInfo).port,
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

async function writer(port: number): Promise<StreamWriter> {
  return {
    async measure(bytes, chunkBytes, durationMs) {
      const { cert, key, ca } = credentials();
      const socket = connect({ host: "127.0.0.1", port, cert, key, ca, minVersion: "TLSv1.3" });
      socket.setNoDelay(true);
      await once(socket, "secureConnect");
      const head = Buffer.alloc(headBytes);
      head.writeBigUInt64LE(BigInt(bytes));
      socket.write(head);
      const chunk = Buffer.alloc(chunkBytes, 7);
      const started = performance.now();
      let transfers = 0;
      do {
        const acknowledged = once(socket, "data");
        for (let sent = 0; sent < bytes; sent += chunkBytes)
          if (!socket.write(chunk.subarray(0, Math.min(chunkBytes, bytes - sent))))
            await once(socket, "drain");
        await acknowledged;
        transfers++;
      } while (performance.now() - started < durationMs);
      const gigabytes = (transfers * bytes) / 1e9;
      socket.destroy();
      return (gigabytes / (performance.now() - started)) * 1000;
    },
    close: async () => {},
  };
}
