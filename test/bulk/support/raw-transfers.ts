import { once } from "node:events";
import { connect, type Socket } from "node:net";

/** A run of memory at the victim: what a request says of a segment. */
export interface Lent {
  readonly key: bigint;
  readonly address: bigint;
}

let names = 0;

const controlBytes = 40;
const headerBytes = 40;
const version = 3;
const [readRequest, write] = [2, 4];

/**
 * A peer without libfabric, which speaks the stream of its tcp provider (xnet_proto.h) a few bytes at a time: so a
 * transfer stands still where the test wants it to, in the middle.
 */
export class RawTransfers {
  readonly #socket: Socket;
  /** The connection is gone. */
  readonly closed: Promise<unknown>;
  received = 0;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("error", () => {});
    socket.on("data", (bytes: Buffer) => {
      this.received += bytes.byteLength;
    });
    // Not `once` of node:events, which rejects where the other side closes before it has read all that was sent.
    this.closed = new Promise((resolve) => socket.once("close", resolve));
  }

  /** Connects as the provider does, and waits for the other side's word. */
  static async connect(url: string): Promise<RawTransfers> {
    const { hostname, port } = new URL(url.replace(/^tcp:/, "http:"));
    const socket = connect(Number(port), hostname);
    const raw = new RawTransfers(socket);
    await once(socket, "connect");
    const hello = Buffer.alloc(controlBytes);
    hello.writeUInt8(version, 0);
    hello.writeUInt16BE(8, 2);
    hello.writeUInt8(1, 24);
    // Where it says to listen, which names it, and its process.
    hello.writeUInt16BE(++names, 34);
    hello.writeUInt32BE(process.pid, 36);
    socket.write(hello);
    while (raw.received < controlBytes) await once(socket, "data");
    raw.received = 0;
    return raw;
  }

  /** Says that it writes `bytes` bytes to the beginning of the memory. They are still to be sent. */
  beginWrite(lent: Lent, bytes: number): void {
    this.#socket.write(header(write, lent, bytes, bytes));
  }

  send(bytes: number, value: number): void {
    this.#socket.write(Buffer.alloc(bytes, value));
  }

  /** Asks for `bytes` bytes from the beginning of the memory. */
  beginRead(lent: Lent, bytes: number): void {
    this.#socket.write(header(readRequest, lent, bytes, 0));
  }

  /** Takes nothing that is sent to it until `resume`. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** As the end of its process: the connection is reset. */
  kill(): void {
    this.#socket.resetAndDestroy();
  }
}

function header(operation: number, { key, address }: Lent, bytes: number, payload: number): Buffer {
  const buffer = Buffer.alloc(headerBytes);
  buffer.writeUInt8(version, 0);
  buffer.writeUInt8(operation, 1);
  buffer.writeUInt8(1, 5);
  buffer.writeUInt8(headerBytes, 6);
  buffer.writeBigUInt64LE(BigInt(headerBytes + payload), 8);
  buffer.writeBigUInt64LE(address, 16);
  buffer.writeBigUInt64LE(BigInt(bytes), 24);
  buffer.writeBigUInt64LE(key, 32);
  return buffer;
}
