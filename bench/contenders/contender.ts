import type { SmallObject } from "./payloads.ts";

/** A client's end of one library over one transport, ready to call. */
export interface Connection {
  /** The object there and back. */
  echo(message: SmallObject): Promise<SmallObject>;
  /** The bytes there and back. */
  bytes(bytes: Uint8Array): Promise<Uint8Array>;
  close(): Promise<void>;
}

/** A server in this process. */
export interface Serving {
  readonly address: string;
  close(): Promise<void>;
}

/** One library over one transport. */
export interface Contender {
  /** Absent where the client brings its server along: a thread, a child, or an engine of its own process. */
  serve?(): Promise<Serving>;
  /** `address` is what `serve` told, or empty. */
  connect(address: string): Promise<Connection>;
}
