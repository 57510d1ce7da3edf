import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { parseAddress, type SocketAddress } from "./address.ts";

export interface DatagramListener {
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
