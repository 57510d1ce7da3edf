import { randomBytes } from "node:crypto";
import { connect, type Socket } from "node:net";
import { takeApart } from "../../../src/session/connection/fake-port.test-support.ts";
import {
  type FrameSpec,
  messageOf,
  packedGreeting,
} from "../../../src/session/connection/fake-services.test-support.ts";
import { decodeAt } from "../../../src/wire/decode-value.ts";
import { frameKind } from "../../../src/wire/frame.ts";
import { type Greeting, parseGreeting } from "../../../src/wire/handshake.ts";
import { greeting, message } from "./tcp-bytes.ts";

const controlBytes = 40;
const headerBytes = 16;

/** The address that a peer at this port of the loopback has in a hello: a `sockaddr_in`. */
function addressAt(port: number): Uint8Array {
  const address = Buffer.alloc(16);
  address[0] = 2;
  address.writeUInt16BE(port, 2);
  address.set([127, 0, 0, 1], 4);
  return address;
}

/** A peer over tcp without libfabric, which writes every byte by hand and does what it likes. */
export class TcpPeer {
  readonly socket: Socket;
  /** Reads of its memory that the server asks for, and which it does not answer. */
  readsAsked = 0;
  open = true;
  #welcome: Greeting | undefined;
  #number = 0;
  #bytes = Buffer.alloc(0);
  #greeted = false;

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.on("error", () => {});
    socket.on("close", () => {
      this.open = false;
    });
    socket.on("data", (bytes) => this.#onBytes(bytes));
  }

  /** Opens a session, as one who says to listen at `ownPort`, where nobody listens. */
  static async connect(serverPort: number, ownPort: number): Promise<TcpPeer> {
    const socket = connect(serverPort, "127.0.0.1");
    const peer = new TcpPeer(socket);
    await new Promise((resolve, reject) => socket.once("connect", resolve).once("error", reject));
    socket.write(greeting(ownPort));
    const address = addressAt(ownPort);
    // A hello with the nonce of another session is answered by nobody.
    const nonce = randomBytes(8).readBigUInt64LE();
    const body = { ...packedGreeting({ address, nonce, services: [], requests: 100 }), msg: 16_384 };
    peer.#send(messageOf(0, 0n, [{ kind: frameKind.hello, body }], 0));
    while (peer.#welcome === undefined) {
      if (!peer.open) throw new Error("the server has closed the connection");
      await new Promise(setImmediate);
    }
    return peer;
  }

  sendFrames(...frames: FrameSpec[]): boolean {
    const { session, nonce } = this.#welcome as Greeting;
    return this.#send(messageOf(session, nonce, frames, ++this.#number));
  }

  #send(bytes: Uint8Array): boolean {
    return this.socket.write(message({ operation: 0, rest: Buffer.from(bytes) }));
  }

  #onBytes(bytes: Buffer): void {
    this.#bytes = Buffer.concat([this.#bytes, bytes]);
    if (!this.#greeted) {
      if (this.#bytes.byteLength < controlBytes) return;
      this.#greeted = true;
      this.#bytes = this.#bytes.subarray(controlBytes);
    }
    while (this.#bytes.byteLength >= headerBytes) {
      const size = Number(this.#bytes.readBigUInt64LE(8));
      if (this.#bytes.byteLength < size) return;
      this.#onMessage(this.#bytes[1] as number, this.#bytes.subarray(this.#bytes[6], size));
      this.#bytes = this.#bytes.subarray(size);
    }
  }

  #onMessage(operation: number, payload: Buffer): void {
    if (operation === 2) this.readsAsked++;
    if (operation !== 0) return;
    for (const { kind, body } of takeApart(0, Uint8Array.from(payload)).frames) {
      if (kind === frameKind.welcome)
        this.#welcome = parseGreeting(decodeAt(Buffer.from(body), 0, body.byteLength)) as Greeting;
    }
  }
}
