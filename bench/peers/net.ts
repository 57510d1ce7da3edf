import { once } from "node:events";
import { createServer, connect as dial, type NetConnectOpts, type Socket } from "node:net";
import { Packr } from "msgpackr";
import type { Contender } from "../contender.ts";
import type { SmallObject } from "../message.ts";

/** Each frame: its body's length and the call's number, 32 bits each, then the body in msgpack. */
const headerBytes = 8;

/** What one would write by hand: node:net, msgpack, a length before each message; no schemas, no deadlines, nothing else. `listen` is a port's or a socket's place. */
export function netMsgpack(name: string, listen: () => NetConnectOpts): Contender {
  return {
    name,
    async serve() {
      const sockets = new Set<Socket>();
      const server = createServer((socket) => {
        sockets.add(socket);
        const codec = new Packr();
        const frames = new Frames(socket);
        frames.onFrame = (id, body) => frames.send(id, codec.pack(codec.unpack(body)));
      });
      server.listen(listen());
      await once(server, "listening");
      const bound = server.address();
      const address: NetConnectOpts =
        typeof bound === "string" ? { path: bound } : { host: "127.0.0.1", port: bound?.port ?? 0 };
      return {
        address: JSON.stringify(address),
        async close() {
          for (const socket of sockets) socket.destroy();
          server.close();
        },
      };
    },
    async connect(address) {
      const socket = dial(JSON.parse(address) as NetConnectOpts);
      await once(socket, "connect");
      const codec = new Packr();
      const frames = new Frames(socket);
      const waiting = new Map<number, (answer: SmallObject) => void>();
      let last = 0;
      frames.onFrame = (id, body) => {
        const resolve = waiting.get(id);
        waiting.delete(id);
        resolve?.(codec.unpack(body) as SmallObject);
      };
      return {
        echo: (message) =>
          new Promise((resolve) => {
            last = (last + 1) >>> 0;
            waiting.set(last, resolve);
            frames.send(last, codec.pack(message));
          }),
        async close() {
          socket.destroy();
        },
      };
    },
  };
}

/** Frames over a socket: what one turn sends leaves in one write, and what arrives is read in place. */
class Frames {
  onFrame: (id: number, body: Buffer) => void = () => {};
  readonly #socket: Socket;
  #rest: Buffer = Buffer.alloc(0);

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.on("data", (chunk) => this.#take(chunk));
    socket.on("error", () => {});
  }

  send(id: number, body: Buffer): void {
    const socket = this.#socket;
    if (socket.writableCorked === 0) {
      socket.cork();
      process.nextTick(() => socket.uncork());
    }
    const frame = Buffer.allocUnsafe(headerBytes + body.byteLength);
    frame.writeUInt32LE(body.byteLength, 0);
    frame.writeUInt32LE(id, 4);
    body.copy(frame, headerBytes);
    socket.write(frame);
  }

  #take(chunk: Buffer): void {
    const bytes = this.#rest.byteLength === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    let at = 0;
    while (bytes.byteLength - at >= headerBytes) {
      const end = at + headerBytes + bytes.readUInt32LE(at);
      if (end > bytes.byteLength) break;
      this.onFrame(bytes.readUInt32LE(at + 4), bytes.subarray(at + headerBytes, end));
      at = end;
    }
    this.#rest = bytes.subarray(at);
  }
}
