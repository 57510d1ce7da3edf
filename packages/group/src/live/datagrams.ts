import { createHmac, timingSafeEqual } from "node:crypto";
import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { isIP } from "node:net";

interface SocketAddress {
  readonly ip: string;
  readonly port: number;
  readonly family: 4 | 6;
}

/**
 * Reads `IP:PORT` or `[IPv6]:PORT`. Names are refused: to resolve one for every message takes longer than the message.
 * @throws TypeError for anything else
 */
export function parseAddress(text: string): SocketAddress {
  const [, bracketed, plain, digits] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text) ?? [];
  const ip = bracketed ?? plain ?? "";
  const port = Number(digits);
  const family = isIP(ip);
  const isWritten = family === (bracketed === undefined ? 4 : 6);
  if (isWritten && port >= 1 && port <= 65_535) return { ip, port, family: family as 4 | 6 };
  throw new TypeError(
    `failure detector: "${text}" is no address; write IP:PORT or [IPv6]:PORT, with a port from 1`,
  );
}

/** Whether a detector at `own` can send to one at `other`. */
export function canReach(own: string, other: string): boolean {
  try {
    return parseAddress(own).family === parseAddress(other).family;
  } catch {
    return false;
  }
}

interface DatagramListener {
  onBytes(bytes: Uint8Array): void;
  /** A message could not be sent. The detector sees that there is no answer. */
  onSendError(reason: string): void;
}

/** Carries messages between detectors, or loses them. It has no connections, so it fits groups of any size. */
export class UdpTransport {
  readonly #socket: Socket;
  readonly #onSendError: (reason: string) => void;
  readonly #parsed = new Map<string, SocketAddress>();
  #isOpen = true;

  /** Listens at an address; rejects where it cannot. */
  static async open(address: string, listener: DatagramListener): Promise<UdpTransport> {
    const own = parseAddress(address);
    const socket = createSocket(own.family === 4 ? "udp4" : "udp6");
    const listening = once(socket, "listening");
    socket.bind(own.port, own.ip);
    await listening;
    return new UdpTransport(socket, listener);
  }

  private constructor(socket: Socket, { onBytes, onSendError }: DatagramListener) {
    this.#socket = socket;
    this.#onSendError = onSendError;
    socket.on("error", ({ message }) => onSendError(message));
    socket.on("message", onBytes);
  }

  /** Sends without waiting. The kernel takes every datagram at once; what cannot be sent is lost. */
  send(to: string, bytes: Uint8Array): void {
    if (!this.#isOpen) return;
    let target = this.#parsed.get(to);
    if (target === undefined) {
      target = parseAddress(to);
      this.#parsed.set(to, target);
    }
    this.#socket.send(bytes, target.port, target.ip, (error) => {
      if (error !== null) this.#onSendError(error.message);
    });
  }

  close(): Promise<void> {
    this.#isOpen = false;
    return new Promise((resolve) => this.#socket.close(() => resolve()));
  }
}

/** Bytes of the tag behind a message: HMAC-SHA-256, cut to half. */
const tagBytes = 16;

/** Authenticates the messages of a group by its key. Messages are not secret. */
export class Seal {
  readonly #key: Uint8Array;

  constructor(key: Uint8Array) {
    this.#key = key;
  }

  close(message: Uint8Array): Uint8Array {
    return Buffer.concat([message, this.#tag(message)]);
  }

  /** The message; undefined where the tag is not that of this key. */
  open(bytes: Uint8Array): Uint8Array | undefined {
    if (bytes.length < tagBytes) return undefined;
    const message = bytes.subarray(0, bytes.length - tagBytes);
    return timingSafeEqual(this.#tag(message), bytes.subarray(message.length)) ? message : undefined;
  }

  #tag(message: Uint8Array): Uint8Array {
    return createHmac("sha256", this.#key).update(message).digest().subarray(0, tagBytes);
  }
}
