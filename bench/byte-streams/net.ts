import { once } from "node:events";
import { connect as dial, type NetConnectOpts, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { serveSockets } from "../contenders/net.ts";
import type { Bouncing, Ways } from "./client.ts";
import { patternedPiece, pieces } from "./pieces.ts";

const operations = ["take", "give", "bounce"] as const;

/** What each connection begins with: the operation, the length of a piece, and for how long to give. */
const headBytes = 16;

function head(operation: (typeof operations)[number], pieceBytes = 0, durationMs = 0): Buffer {
  const bytes = Buffer.alloc(headBytes);
  bytes.writeUInt32LE(operations.indexOf(operation), 0);
  bytes.writeUInt32LE(pieceBytes, 4);
  bytes.writeDoubleLE(durationMs, 8);
  return bytes;
}

/** By hand: one connection for each stream, `drain` respected. */
export async function serveNet(transport: string) {
  const listen: NetConnectOpts =
    transport === "unix"
      ? { path: join(tmpdir(), `cinnabar-bench-bytes-${process.pid}.sock`) }
      : { host: "127.0.0.1", port: 0 };
  return serveSockets(listen, { allowHalfOpen: true, noDelay: true }, async (socket) => {
    const [first] = (await once(socket, "data")) as [Buffer];
    socket.pause();
    if (first.byteLength > headBytes) socket.unshift(first.subarray(headBytes));
    const pieceBytes = first.readUInt32LE(4);
    switch (operations[first.readUInt32LE(0)]) {
      case "take": {
        let bytes = 0;
        socket.on("data", (part) => (bytes += part.byteLength));
        socket.on("end", () => {
          const answer = Buffer.alloc(8);
          answer.writeDoubleLE(bytes);
          socket.end(answer);
        });
        socket.resume();
        return;
      }
      case "give":
        await writeAll(socket, pieces(patternedPiece(pieceBytes), first.readDoubleLE(8)));
        socket.resume();
        return;
      case "bounce":
        socket.pipe(socket);
    }
  });
}

async function writeAll(socket: Socket, all: Iterable<Uint8Array>): Promise<number> {
  let bytes = 0;
  for (const piece of all) {
    bytes += piece.byteLength;
    if (!socket.write(piece)) await once(socket, "drain");
  }
  socket.end();
  return bytes;
}

/** The only way that node:net has. */
export function netWays(address: string): Ways {
  const connect = async (first: Buffer) => {
    const socket = dial({ ...(JSON.parse(address) as NetConnectOpts), allowHalfOpen: true });
    await once(socket, "connect");
    socket.setNoDelay(true);
    socket.write(first);
    return socket;
  };
  return {
    net: {
      async up(all) {
        const socket = await connect(head("take"));
        const answered = once(socket, "data");
        const sent = await writeAll(socket, all);
        const [answer] = (await answered) as [Buffer];
        if (answer.readDoubleLE() !== sent)
          throw new Error(`node:net: ${sent} bytes were sent, ${answer.readDoubleLE()} came`);
        return sent;
      },
      async down(pieceBytes, durationMs) {
        const socket = await connect(head("give", pieceBytes, durationMs));
        let bytes = 0;
        for await (const part of socket) bytes += (part as Buffer).byteLength;
        return bytes;
      },
      async bounce(): Promise<Bouncing> {
        const socket = await connect(head("bounce"));
        const parts = socket[Symbol.asyncIterator]();
        return {
          async write(piece) {
            socket.write(piece);
          },
          async next() {
            const { done, value } = await parts.next();
            return done === true ? undefined : (value as Buffer);
          },
          async end() {
            socket.end();
            await parts.next();
            socket.destroy();
          },
        };
      },
    },
  };
}
