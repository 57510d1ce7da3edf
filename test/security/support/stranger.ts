import { randomBytes } from "node:crypto";
import type { Port } from "../../../src/fabric/port.ts";
import { type SentFrame, takeApart } from "../../../src/session/connection/fake-port.test-support.ts";
import { messageOf } from "../../../src/session/connection/fake-services.test-support.ts";
import { encode } from "../../../src/wire/encode-value.ts";
import { helloMessage, packSecureHello, type SecureHello } from "../../../src/wire/hello.ts";
import { sealedMagic } from "../../../src/wire/message.ts";
import { HandMadePeer, reach } from "../../hostile/support/hand-made-peer.ts";
import type { Authority } from "./authority.ts";
import { endpoint, tlsCredentials } from "./exchange-pair.ts";

/** Somebody who reaches a port, writes every byte by hand, and has no certificate. */
export class Stranger extends HandMadePeer {
  /** What was said to it in the clear, oldest first; `nonce` says which hello that answers. */
  readonly heard: (SentFrame & { readonly nonce: bigint })[] = [];
  readonly #address: number;
  readonly #replyTo: Uint8Array;
  /** How many messages it has sent in each session, by the nonce. */
  readonly #said = new Map<bigint, number>();
  private constructor(port: Port, address: number, replyTo: Uint8Array) {
    super(port);
    this.#address = address;
    this.#replyTo = replyTo;
  }

  static async at(url: string): Promise<Stranger> {
    const { port, address, replyTo } = await reach(url);
    return new Stranger(port, address, replyTo);
  }

  protected override onMessage(message: Uint8Array): void {
    if (message[0] === sealedMagic) return;
    const { frames, nonce } = takeApart(0, message);
    this.heard.push(...frames.map((frame) => ({ ...frame, nonce })));
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
    return this.sendTo(this.#address, helloMessage(encode(packSecureHello(hello))));
  }

  /** Says something in the session that a hello has led to. */
  say({ session, nonce }: { session: number; nonce: bigint }, kind: number, body: Uint8Array): Promise<void> {
    const number = (this.#said.get(nonce) ?? 0) + 1;
    this.#said.set(nonce, number);
    return this.sendTo(this.#address, messageOf(session, nonce, [{ kind, body }], number));
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
