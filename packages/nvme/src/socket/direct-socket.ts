import { type NetConnectOpts, type OnReadOpts, Socket, type SocketConstructorOpts } from "node:net";

/** Where the bytes of a socket go. */
export interface Sink {
  /** Memory for what comes next, one byte at least. It holds until the next call. */
  place(): Uint8Array;
  /** So many bytes have come into the memory that was asked for last, or into that of the socket before. */
  filled(bytes: number, memory: Uint8Array): void;
}

/** A connection whose bytes go straight into the memory of their reader. */
export class DirectSocket extends Socket {
  /** Node asks for memory while it makes the socket, so this is made before. */
  readonly #door: { sink?: Sink; readonly first: Uint8Array };

  private constructor(options: { readonly handle?: object; readonly allowHalfOpen?: boolean | undefined }) {
    const door: { sink?: Sink; readonly first: Uint8Array } = { first: Buffer.alloc(64) };
    const onread: OnReadOpts = {
      buffer: () => door.sink?.place() ?? door.first,
      callback(bytes, memory) {
        door.sink?.filled(bytes, memory);
        return true;
      },
    };
    super({ ...options, onread } as SocketConstructorOpts);
    this.#door = door;
  }

  /** As `net.connect`. A reader must be set when the connection is made, or it loses bytes. */
  static connect(options: NetConnectOpts): DirectSocket {
    const socket = new DirectSocket({ allowHalfOpen: options.allowHalfOpen });
    socket.connect(options);
    return socket;
  }

  /**
   * Takes over a connection that was accepted and not read. Node lets only a client choose the memory that it reads into,
   * so this goes by the handle in the socket. A socket without one stays as it is, and emits its bytes as data.
   */
  static of(accepted: Socket): Socket {
    const holder = accepted as unknown as { _handle?: { useUserBuffer?: unknown } | null };
    const handle = holder._handle;
    if (typeof handle?.useUserBuffer !== "function") return accepted.resume();
    holder._handle = null;
    accepted.destroy();
    return new DirectSocket({ handle });
  }

  /** From now on the bytes go to `sink`; to none before TLS takes over the connection. */
  readInto(sink: Sink | undefined): void {
    if (sink === undefined) delete this.#door.sink;
    else this.#door.sink = sink;
  }
}
