import { randomBytes } from "node:crypto";
import { connect, type Socket } from "node:net";
import {
  frameKind as netFrame,
  magic as netMagic,
  version as netVersion,
  writeHeader,
} from "../../../src/fabric/net/frame.ts";
import { takeApart } from "../../../src/session/connection/fake-port.test-support.ts";
import {
  type FrameSpec,
  messageOf,
  packedGreeting,
} from "../../../src/session/connection/fake-services.test-support.ts";
import { decodeAt } from "../../../src/wire/decode-value.ts";
import { frameKind } from "../../../src/wire/frame.ts";
import { type Greeting, parseGreeting } from "../../../src/wire/handshake.ts";
import { type Fabric, fabrics } from "./fabrics.ts";
import { greeting, message } from "./tcp-bytes.ts";

const headerBytes = 16;

/** How a fabric frames messages on a socket. */
interface Framing {
  /** The first bytes of a peer that says to listen at a port. */
  greeting(ownPort: number): Buffer;
  /** The length of the server's first bytes, as far as they have come; 0: not known yet. */
  greetedBytes(bytes: Buffer): number;
  /** The address of the peer in its hello. `greeted`: the server's first bytes. */
  address(ownPort: number, greeted: Buffer): Uint8Array;
  frame(message: Uint8Array): Buffer;
  /** What a frame is: its length, what it means, and where its message begins. */
  look(header: Buffer): {
    readonly bytes: number;
    readonly is: "message" | "read" | "other";
    readonly at: number;
  };
}

const tcp: Framing = {
  greeting,
  greetedBytes: () => 40,
  /** A `sockaddr_in`. */
  address(port) {
    const address = Buffer.alloc(16);
    address[0] = 2;
    address.writeUInt16BE(port, 2);
    address.set([127, 0, 0, 1], 4);
    return address;
  },
  frame: (bytes) => message({ operation: 0, rest: Buffer.from(bytes) }),
  look: (header) => ({
    bytes: Number(header.readBigUInt64LE(8)),
    is: header[1] === 0 ? "message" : header[1] === 2 ? "read" : "other",
    at: header[6] as number,
  }),
};

function netBytes(kind: number, body: Uint8Array, request = 0, word = 0): Buffer {
  const bytes = Buffer.alloc(headerBytes + body.byteLength);
  writeHeader(bytes, 0, kind, body.byteLength, request, word);
  bytes.set(body, headerBytes);
  return bytes;
}

const net: Framing = {
  greeting: () => netBytes(netFrame.hello, new Uint8Array(0), netMagic, netVersion),
  greetedBytes: (bytes) => bytes.readUInt32LE(0),
  /** The server has said how it reaches the peer. */
  address: (_, greeted) => Uint8Array.from(greeted.subarray(headerBytes)),
  frame: (bytes) => netBytes(netFrame.message, bytes),
  look: (header) => ({
    bytes: header.readUInt32LE(0),
    is: header[4] === netFrame.message ? "message" : header[4] === netFrame.get ? "read" : "other",
    at: headerBytes,
  }),
};

/** The fabrics whose bytes this can write. */
export const rawFabrics: readonly Fabric[] = fabrics.filter((fabric) => fabric === "tcp" || fabric === "net");

/** A peer over tcp or net that writes every byte by hand and does what it likes. */
export class RawPeer {
  readonly socket: Socket;
  /** Reads of its memory that the server asks for, and which it does not answer. */
  readsAsked = 0;
  open = true;
  readonly #framing: Framing;
  #welcome: Greeting | undefined;
  #number = 0;
  #bytes = Buffer.alloc(0);
  /** The server's first bytes. */
  #greeted: Buffer | undefined;

  private constructor(socket: Socket, framing: Framing) {
    this.socket = socket;
    this.#framing = framing;
    socket.on("error", () => {});
    socket.on("close", () => {
      this.open = false;
    });
    socket.on("data", (bytes) => this.#onBytes(bytes));
  }

  /** Opens a session, as one who says to listen at `ownPort`, where nobody listens. */
  static async connect(url: string, ownPort: number): Promise<RawPeer> {
    const { protocol, port } = new URL(url);
    const socket = connect(Number(port), "127.0.0.1");
    const framing = protocol === "net:" ? net : tcp;
    const peer = new RawPeer(socket, framing);
    await new Promise((resolve, reject) => socket.once("connect", resolve).once("error", reject));
    socket.write(framing.greeting(ownPort));
    const address = framing.address(ownPort, await peer.#come(() => peer.#greeted));
    // A hello with the nonce of another session is answered by nobody.
    const nonce = randomBytes(8).readBigUInt64LE();
    const body = { ...packedGreeting({ address, nonce, services: [], requests: 100 }), msg: 16_384 };
    peer.#send(messageOf(0, 0n, [{ kind: frameKind.hello, body }], 0));
    await peer.#come(() => peer.#welcome);
    return peer;
  }

  async #come<T>(find: () => T | undefined): Promise<T> {
    for (;;) {
      const found = find();
      if (found !== undefined) return found;
      if (!this.open) throw new Error("the server has closed the connection");
      await new Promise(setImmediate);
    }
  }

  sendFrames(...frames: FrameSpec[]): boolean {
    const { session, nonce } = this.#welcome as Greeting;
    return this.#send(messageOf(session, nonce, frames, ++this.#number));
  }

  #send(bytes: Uint8Array): boolean {
    return this.socket.write(this.#framing.frame(bytes));
  }

  #onBytes(bytes: Buffer): void {
    this.#bytes = Buffer.concat([this.#bytes, bytes]);
    if (this.#greeted === undefined) {
      if (this.#bytes.byteLength < headerBytes) return;
      const greetedBytes = this.#framing.greetedBytes(this.#bytes);
      if (this.#bytes.byteLength < greetedBytes) return;
      this.#greeted = this.#bytes.subarray(0, greetedBytes);
      this.#bytes = this.#bytes.subarray(greetedBytes);
    }
    while (this.#bytes.byteLength >= headerBytes) {
      const frame = this.#framing.look(this.#bytes);
      if (this.#bytes.byteLength < frame.bytes) return;
      if (frame.is === "read") this.readsAsked++;
      else if (frame.is === "message") this.#onMessage(this.#bytes.subarray(frame.at, frame.bytes));
      this.#bytes = this.#bytes.subarray(frame.bytes);
    }
  }

  #onMessage(payload: Buffer): void {
    for (const { kind, body } of takeApart(0, Uint8Array.from(payload)).frames) {
      if (kind === frameKind.welcome)
        this.#welcome = parseGreeting(decodeAt(Buffer.from(body), 0, body.byteLength)) as Greeting;
    }
  }
}
