import { once } from "node:events";
import { createServer, connect as dial, type NetConnectOpts, type ServerOpts, type Socket } from "node:net";
import { Packr } from "msgpackr";
import type { Contender, Serving } from "./contender.ts";
import type { SmallObject } from "./payloads.ts";
import { Waiting } from "./waiting.ts";

/** Each frame: its body's length and the call's number, 32 bits each, then the body in msgpack. */
const headerBytes = 8;
/** Longer bodies are written as they are instead of being copied behind their header. */
const copiedBytes = 4096;

/**
 * What one would write by hand: node:net, msgpack, a length before each message; no schemas, no deadlines, nothing
 * else. `listen` is a port's or a socket's place.
 */
export function netMsgpack(listen: NetConnectOpts): Contender {
  return {
    serve: () =>
      serveSockets(listen, {}, (socket) => {
        const codec = new Packr();
        const frames = new Frames(socket, (id, body) => frames.send(id, codec.pack(codec.unpack(body))));
      }),
    async connect(address) {
      const socket = dial(JSON.parse(address) as NetConnectOpts);
      await once(socket, "connect");
      const codec = new Packr();
      const waiting = new Waiting<unknown>();
      const frames = new Frames(socket, (id, body) => waiting.answer(id, codec.unpack(body)));
      const call = (message: unknown) => waiting.call((id) => frames.send(id, codec.pack(message)));
      return {
        echo: (message) => call(message) as Promise<SmallObject>,
        bytes: (bytes) => call(bytes) as Promise<Uint8Array>,
        close: async () => void socket.destroy(),
      };
    },
  };
}

/** Serves by hand. Its address is the options of `connect` as JSON. */
export async function serveSockets(
  listen: NetConnectOpts,
  options: ServerOpts,
  onSocket: (socket: Socket) => void,
): Promise<Serving> {
  const sockets = new Set<Socket>();
  const server = createServer(options, (socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
    onSocket(socket);
  });
  server.listen(listen);
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
}

/** Frames over a socket: what one turn sends leaves in one write, and what arrives is read in place. */
export class Frames {
  readonly #socket: Socket;
  readonly #onFrame: (id: number, body: Buffer) => void;
  /** What has come of a frame that is not all there, and how long it must be before another look is worth it. */
  #chunks: Buffer[] = [];
  #held = 0;
  #wanted = headerBytes;

  constructor(socket: Socket, onFrame: (id: number, body: Buffer) => void) {
    this.#socket = socket;
    this.#onFrame = onFrame;
    socket.setNoDelay(true);
    socket.on("data", (chunk) => this.#take(chunk));
    socket.on("error", () => {});
  }

  /** False when what waits to be written is much, as `socket.write` tells. */
  send(id: number, body: Buffer): boolean {
    const socket = this.#socket;
    if (socket.writableCorked === 0) {
      socket.cork();
      process.nextTick(() => socket.uncork());
    }
    const isCopied = body.byteLength <= copiedBytes;
    const frame = Buffer.allocUnsafe(headerBytes + (isCopied ? body.byteLength : 0));
    frame.writeUInt32LE(body.byteLength, 0);
    frame.writeUInt32LE(id, 4);
    if (isCopied) body.copy(frame, headerBytes);
    const hasRoom = socket.write(frame);
    return isCopied ? hasRoom : socket.write(body);
  }

  #take(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#held += chunk.byteLength;
    if (this.#held < this.#wanted) return;
    const bytes = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks, this.#held);
    let at = 0;
    this.#wanted = headerBytes;
    while (bytes.byteLength - at >= headerBytes) {
      const end = at + headerBytes + bytes.readUInt32LE(at);
      if (end > bytes.byteLength) {
        this.#wanted = end - at;
        break;
      }
      this.#onFrame(bytes.readUInt32LE(at + 4), bytes.subarray(at + headerBytes, end));
      at = end;
    }
    this.#chunks = at < bytes.byteLength ? [bytes.subarray(at)] : [];
    this.#held = bytes.byteLength - at;
  }
}
