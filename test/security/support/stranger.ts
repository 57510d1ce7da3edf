import { randomBytes } from "node:crypto";
import { openConnectingPort } from "../../../src/fabric/open-port.ts";
import { defaultLayout, type Port, type PortSink } from "../../../src/fabric/port.ts";
import { locate } from "../../../src/fabric/target.ts";
import { type SentFrame, takeApart } from "../../../src/session/connection/fake-port.test-support.ts";
import { messageOf } from "../../../src/session/connection/fake-services.test-support.ts";
import { encode } from "../../../src/wire/encode-value.ts";
import { helloMessage, packSecureHello, type SecureHello } from "../../../src/wire/hello.ts";
import { sealedMagic } from "../../../src/wire/message.ts";
import type { Authority } from "./authority.ts";
import { endpoint, tlsCredentials } from "./exchange-pair.ts";

const owner = { onSent: () => {} };

/** Somebody who reaches a port, writes every byte by hand, and has no certificate. */
export class Stranger implements Disposable {
  readonly port: Port;
  /** What was said to it in the clear, oldest first; `nonce` says which hello that answers. */
  readonly heard: (SentFrame & { readonly nonce: bigint })[] = [];
  readonly #address: number;
  readonly #replyTo: Uint8Array;
  /** How many messages it has sent in each session, by the nonce. */
  readonly #said = new Map<bigint, number>();
  readonly #sink: PortSink = {
    onMessage: (port, offset, bytes) => {
      const message = Uint8Array.from(port.slab.subarray(offset, offset + bytes));
      if (message[0] === sealedMagic) return;
      const { frames, nonce } = takeApart(0, message);
      this.heard.push(...frames.map((frame) => ({ ...frame, nonce })));
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
    const { address, replyTo } = await port.route(target);
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
    return this.#send(helloMessage(encode(packSecureHello(hello))));
  }

  /** Says something in the session that a hello has led to. */
  say({ session, nonce }: { session: number; nonce: bigint }, kind: number, body: Uint8Array): Promise<void> {
    const number = (this.#said.get(nonce) ?? 0) + 1;
    this.#said.set(nonce, number);
    return this.#send(messageOf(session, nonce, [{ kind, body }], number));
  }

  async #send(message: Uint8Array): Promise<void> {
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
      onResult() {},
    });
  });
}
