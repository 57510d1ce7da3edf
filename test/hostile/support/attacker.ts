import { openListeningPort } from "../../../src/fabric/open-port.ts";
import { defaultLayout, type Port } from "../../../src/fabric/port.ts";
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
import { HandMadePeer, reach } from "./hand-made-peer.ts";

const noAddress = new Uint8Array(0);
/** Of all attackers' hellos: one with the nonce of another is dropped. */
let lastNonce = 0x3333_0000_3333n;

/** A peer that writes every byte by hand and keeps to nothing. */
export class Attacker extends HandMadePeer {
  /** The address at which the victim reaches it. */
  readonly address: Uint8Array;
  /** Every frame that was sent to us, oldest first. */
  readonly frames: SentFrame[] = [];
  #victim: number;
  /** What messages to the victim must carry: from its last welcome. */
  session = 0;
  nonce = 0n;
  /** The number of the last message to the victim. */
  number = 0;

  private constructor(port: Port, address: Uint8Array, victim = -1) {
    super(port);
    this.address = address;
    this.#victim = victim;
  }

  /** Reaches the engine at `url`. */
  static async at(url: string): Promise<Attacker> {
    const { port, address, replyTo } = await reach(url);
    return new Attacker(port, replyTo, address);
  }

  /** Listens at `port.url`: the victim comes to it. */
  static async listening(): Promise<Attacker> {
    return new Attacker(await openListeningPort(freshUrl(), defaultLayout), noAddress);
  }

  /** The victim is reached at this address from now on: it has said so. */
  faceTo(address: Uint8Array): void {
    this.#victim = this.port.admit(address);
  }

  protected override onMessage(message: Uint8Array): void {
    this.frames.push(...takeApart(0, message).frames);
  }

  /** Sends bytes as they are. */
  send(bytes: Uint8Array): Promise<void> {
    return this.sendTo(this.#victim, bytes);
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

  /** The first frame of a kind among those from `from` on. */
  async next(kind: number, from = 0): Promise<SentFrame> {
    const find = () => this.frames.slice(from).find((frame) => frame.kind === kind);
    await this.until(() => find() !== undefined, `frame of kind ${kind}`);
    return find() as SentFrame;
  }
}

export function bodyOf({ body }: SentFrame): unknown {
  return body.byteLength === 0 ? undefined : decodeAt(body, 0, body.byteLength);
}
