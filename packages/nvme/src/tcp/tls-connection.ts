import type { Duplex } from "node:stream";
import { ByteReader } from "../socket/byte-reader.ts";
import type { Connection } from "../socket/socket-server.ts";
import type { Secured, TargetKeys } from "../tls/target-side.ts";
import type { TcpQueue } from "./queue.ts";

/** The header of a record of TLS, and that of the hello in it. */
const helloHeadBytes = 9;
/** A hello with every key share that OpenSSL makes has a tenth of it. OpenSSL would take memory for 128 KiB. */
const maxHelloBytes = 16 * 1024;
const icReqBytes = 128;
/** What a connection may hold unread before its first message is recognized. */
const maxUnreadBytes = 1024;

/** Opens the queue of a connection: over TLS, or of one that has begun without it. */
export type OpenTcpQueue = (over: Secured | ByteReader) => TcpQueue;

/** A connection to a target whose hosts have keys of TLS. Its first bytes show whether it begins with TLS. */
export class TlsConnection implements Connection {
  readonly #socket: Duplex;
  readonly #keys: TargetKeys;
  readonly #open: OpenTcpQueue;
  #queue: TcpQueue | undefined;

  constructor(socket: Duplex, keys: TargetKeys, open: OpenTcpQueue) {
    this.#socket = socket;
    this.#keys = keys;
    this.#open = open;
  }

  get isOwed(): boolean {
    return this.#queue?.isOwed ?? true;
  }

  async run(): Promise<void> {
    const reader = new ByteReader(this.#socket, maxUnreadBytes);
    const head = await reader.peek(helloHeadBytes);
    if (head === undefined) return;
    if (!isTls(head)) {
      if (this.#keys.allowsPlaintext) this.#queue = this.#open(reader);
      // The host gets the end of the connection. It would get a reset while a part of its ICReq is unread.
      else await reader.skip(icReqBytes);
    } else if (isShortHello(head)) {
      reader.release();
      const secured = await this.#keys.accept(this.#socket);
      if (secured === undefined) return;
      this.#queue = this.#open(secured);
    }
    await this.#queue?.run();
  }

  end(): void {
    if (this.#queue === undefined) this.#socket.destroy();
    else this.#queue.end();
  }
}

/** A record with a message of the handshake. A PDU of a host has a type below 10 there. */
const isTls = (head: Buffer): boolean => head.readUInt8(0) === 22;

const isShortHello = (head: Buffer): boolean =>
  head.readUInt8(5) === 1 && head.readUIntBE(6, 3) <= maxHelloBytes;
