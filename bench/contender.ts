import type { SmallObject } from "./message.ts";

/** One library over one transport, ready to call. */
export interface Connection {
  echo(message: SmallObject): Promise<SmallObject>;
  close(): Promise<void>;
}

/** A server in this process. */
export interface Serving {
  readonly address: string;
  close(): Promise<void>;
}

export interface Contender {
  readonly name: string;
  serve(): Promise<Serving>;
  connect(address: string): Promise<Connection>;
}
