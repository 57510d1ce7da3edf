import { randomBytes } from "node:crypto";
import { openConnectingPort } from "../../../src/fabric/open-port.ts";
import { defaultLayout, type Port, type PortSink } from "../../../src/fabric/port.ts";
import { locate } from "../../../src/fabric/target.ts";
import {
  type OpeningFrame,
  openingMessage,
  packSecureHello,
  readOpeningFrame,
  type SecureHello,
} from "../../../src/session/opening/opening-message.ts";
import { encode } from "../../../src/wire/codec.ts";
import { frameKind } from "../../../src/wire/frame.ts";
import type { Authority } from "./authority.ts";
import { endpoint, tlsCredentials } from "./exchange-pair.ts";

const owner = { onSent: () => {} };

/** Somebody who reaches a port, writes every byte by hand, and has no certificate. */
export class Stranger implements Disposable {
  readonly port: Port;
  /** What was said to it in the clear, oldest first; `nonce` says which hello that answers. */
  readonly heard: (OpeningFrame & { readonly nonce: bigint })[] = [];
  readonly #address: number;
  readonly #replyTo: Uint8Array;
  readonly #sink: PortSink = {
    onMessage: (port, offset, bytes) => {
      const frame = readOpeningFrame(port.slab, port.slabView, offset, bytes);
      if (typeof frame === "string") return;
      const nonce = port.slabView.getBigUint64(offset + 8, true);
      this.heard.push({ ...frame, body: Uint8Array.from(frame.body), nonce });
    },
    onMessageLost() {},
    onPutNotification() {},
    onPeerGone() {},
  };

  private constructor(port: Port, address: number, replyTo: Uint8Array) {
    this.port = port;
    this.#address = address;
    this.#replyTo = replyTo;
  }

  static async at(url: string): Promise<Stranger> {
    const target = await locate(url);
    const port = await openConnectingPort(target, defaultLayout);
    const { address, replyTo } = port.route(target);
    return new Stranger(port, port.admit(address), replyTo);
  }

  /** A hello that is new, but for what is given. */
  hello(change: Partial<SecureHello> = {}): SecureHello {
    return {
      versions: [2, 2],
      session: 1,
      nonce: randomBytes(8).readBigUInt64LE(),
      address: this.#replyTo,
      messageBytes: 16_384,
      suites: [1],
      flight: randomBytes(200),
      ...change,
    };
  }

  sayHello(hello: SecureHello): Promise<void> {
    return this.send(openingMessage(frameKind.hello, 0, encode(packSecureHello(hello))));
  }

  async send(message: Uint8Array): Promise<void> {
    let slot = this.port.takeSlot();
    while (slot < 0) {
      await this.turn();
      slot = this.port.takeSlot();
    }
    this.port.slab.set(message, slot);
    this.port.send(this.#address, slot, message.byteLength, owner);
  }

  /** Both sides make progress. */
  async turn(): Promise<void> {
    await new Promise(setImmediate);
    this.port.progress(0, this.#sink);
  }

  async until(condition: () => boolean, what: string): Promise<void> {
    const untilMs = performance.now() + 20_000;
    while (!condition()) {
      if (performance.now() > untilMs) throw new Error(`no ${what} within 20 s`);
      await this.turn();
    }
  }

  [Symbol.dispose](): void {
    this.port.close();
  }
}

/** The first flight of a client that nobody knows. */
export async function firstFlight(ca: Authority): Promise<Uint8Array> {
  const foreign = endpoint(tlsCredentials({}, ca.cert));
  return new Promise((resolve) => {
    const exchange = foreign.connect("x", {
      onFlight(bytes) {
        resolve(Uint8Array.from(bytes));
        setImmediate(() => exchange.close());
      },
      onProven() {},
      onRefused() {},
    });
  });
}
