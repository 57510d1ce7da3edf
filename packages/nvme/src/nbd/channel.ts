import type { Duplex } from "node:stream";
import { ByteReader } from "../socket/byte-reader.ts";
import { ByteWriter } from "../socket/byte-writer.ts";
import type { TlsUpgrade } from "./tls-upgrade.ts";

/** What a connection may hold unread in its handshake. The longest option is read in any case. */
const maxUnreadBytes = 16 * 1024;

/** The bytes of a connection, which TLS may take over in its middle. */
export class Channel {
  readonly #socket: Duplex;
  readonly #upgrade: TlsUpgrade | undefined;
  #reader: ByteReader;
  #writer: ByteWriter;
  #isSecured = false;

  constructor(socket: Duplex, upgrade: TlsUpgrade | undefined) {
    this.#socket = socket;
    this.#upgrade = upgrade;
    this.#reader = new ByteReader(socket, maxUnreadBytes);
    this.#writer = new ByteWriter(socket);
  }

  get reader(): ByteReader {
    return this.#reader;
  }

  get writer(): ByteWriter {
    return this.#writer;
  }

  /** Whether the server has no certificate, TLS has not begun, or all bytes go through it. */
  get tls(): "none" | "required" | "done" {
    if (this.#isSecured) return "done";
    return this.#upgrade === undefined ? "none" : "required";
  }

  /**
   * Lets TLS take over what the peer sends from now on, when it has what was written. What has come already goes to TLS
   * as well: nothing that came in plain text is read as if it had come over TLS. False where the connection has ended.
   */
  async startTls(): Promise<boolean> {
    await this.#writer.flushed();
    // A peer that sends no more gets the answer, and cannot begin TLS.
    let secured: Duplex | undefined;
    if (!this.#socket.readableEnded) {
      this.#reader.release();
      secured = await this.#upgrade?.accept(this.#socket);
    }
    if (secured === undefined) {
      this.#socket.destroy();
      return false;
    }
    this.#reader = new ByteReader(secured, maxUnreadBytes);
    this.#writer = new ByteWriter(secured);
    this.#isSecured = true;
    return true;
  }
}
