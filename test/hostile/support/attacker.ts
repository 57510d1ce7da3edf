import { expect } from "vitest";
import { openConnectingPort, openListeningPort } from "../../../src/fabric/open-port.ts";
import { defaultLayout, type Port, type PortSink } from "../../../src/fabric/port.ts";
import { locate } from "../../../src/fabric/target.ts";
import { type SentFrame, takeApart } from "../../../src/session/connection/fake-port.test-support.ts";
import {
  type FrameSpec,
  messageOf,
  packedGreeting,
} from "../../../src/session/connection/fake-services.test-support.ts";
import { decodeAt } from "../../../src/wire/decode-value.ts";
import { frameKind } from "../../../src/wire/frame.ts";
import { type Greeting, parseGreeting } from "../../../src/wire/handshake.ts";
import { freshUrl } from "./fabric.ts";

const owner = { onSent: () => {} };
const noAddress = new Uint8Array(0);
/** Of all attackers' hellos: one with the nonce of another is dropped. */
let lastNonce = 0x3333_0000_3333n;

/** A peer that writes every byte by hand and keeps to nothing. */
export class Attacker implements Disposable {
  readonly port: Port;
  /** The address at which the victim reaches it. */
  readonly address: Uint8Array;
  /** Every frame that was sent to us, oldest first. */
  readonly frames: SentFrame[] = [];
  #victim: number;
  readonly #sink: PortSink = {
    onMessage: (port, offset, bytes) => {
      this.frames.push(...takeApart(0, Uint8Array.from(port.slab.subarray(offset, offset + bytes))).frames);
    },
    onMessageLost: () => {},
    onPutNotification: () => {},
    onPeerGone: () => {},
  };
  /** What messages to the victim must carry: from its last welcome. */
  session = 0;
  nonce = 0n;
  /** The number of the last message to the victim. */
  number = 0;

  private constructor(port: Port, address: Uint8Array, victim = -1) {
    this.port = port;
    this.address = address;
    this.#victim = victim;
  }

  /** Reaches the engine at `url`. */
  static async at(url: string): Promise<Attacker> {
    const target = await locate(url);
    const port = await openConnectingPort(target, defaultLayout);
    const { address, replyTo } = await port.route(target);
    return new Attacker(port, replyTo, port.admit(address));
  }

  /** Listens at `port.url`: the victim comes to it. */
  static async listening(): Promise<Attacker> {
    return new Attacker(await openListeningPort(freshUrl(), defaultLayout), noAddress);
  }

  /** The victim is reached at this address from now on: it has said so. */
  faceTo(address: Uint8Array): void {
    this.#victim = this.port.admit(address);
  }

  /** Sends bytes as they are. */
  async send(bytes: Uint8Array): Promise<void> {
    let slot = this.port.takeSlot();
    while (slot < 0) {
      await this.turn();
      slot = this.port.takeSlot();
    }
    this.port.slab.set(bytes, slot);
    this.port.send(this.#victim, slot, bytes.byteLength, owner);
  }

  /** Sends frames in a message that is well formed but for them. */
  sendFrames(...frames: FrameSpec[]): Promise<void> {
    return this.send(this.message(...frames));
  }

  message(...frames: FrameSpec[]): Uint8Array<ArrayBuffer> {
    return messageOf(this.session, this.nonce, frames, ++this.number);
  }

  hello(change: Record<string, unknown> = {}): Uint8Array {
    const body = {
      ...packedGreeting({ address: this.address, services: [], requests: 100, nonce: ++lastNonce }),
      msg: 16_384,
      ...change,
    };
    return messageOf(0, 0n, [{ kind: frameKind.hello, body }], 0);
  }

  /** Opens a session like an honest peer. */
  async connect(change: Record<string, unknown> = {}): Promise<Greeting> {
    const from = this.frames.length;
    await this.send(this.hello(change));
    const welcome = await this.next(frameKind.welcome, from);
    const greeting = parseGreeting(bodyOf(welcome)) as Greeting;
    this.session = greeting.session;
    this.nonce = greeting.nonce;
    this.number = 0;
    return greeting;
  }

  /** One turn of the loop: both sides make progress. */
  async turn(): Promise<void> {
    await new Promise(setImmediate);
    this.port.progress(0, this.#sink);
  }

  async until(condition: () => boolean, what: string): Promise<void> {
    const untilMs = performance.now() + 20_000;
    while (!condition()) {
      if (performance.now() > untilMs) expect.fail(`no ${what} within 20 s`);
      await this.turn();
    }
  }

  /** The first frame of a kind among those from `from` on. */
  async next(kind: number, from = 0): Promise<SentFrame> {
    const find = () => this.frames.slice(from).find((frame) => frame.kind === kind);
    await this.until(() => find() !== undefined, `frame of kind ${kind}`);
    return find() as SentFrame;
  }

  [Symbol.dispose](): void {
    this.port.close();
  }
}

export function bodyOf({ body }: SentFrame): unknown {
  return body.byteLength === 0 ? undefined : decodeAt(body, 0, body.byteLength);
}
