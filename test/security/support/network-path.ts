import { decodeAt } from "../../../src/wire/decode-value.ts";
import { frameHeaderBytes, frameKind } from "../../../src/wire/frame.ts";
import { acceptorTermsBytes, parseSecureHello, parseTerms, withTerms } from "../../../src/wire/hello.ts";
import {
  messageHeaderBytes,
  Nonce,
  nonceOffset,
  sealedMagic,
  sessionOffset,
  writeMessageHeader,
} from "../../../src/wire/message.ts";
import { PortOnPath } from "./fabric.ts";

export type Side = "connector" | "acceptor";

/** One hello and all that follows from it. A hello that comes again with a cookie goes on with the same attempt. */
export interface Attempt {
  /** From 0 on, in the order of the hellos. */
  readonly number: number;
  /** How many of its messages in the clear have passed, the one that is shown included. */
  messages: number;
  /** The connector has sent something sealed: it has opened the acceptor's welcome, and so the session. */
  isOpen: boolean;
}

/** A message in the clear that passes while a session opens. */
export interface PassingMessage {
  readonly from: Side;
  /** A number of `frameKind`. */
  readonly kind: number;
  readonly attempt: Attempt;
  readonly bytes: Uint8Array;
}

/** The messages of an opening. */
export type OpeningMessageName =
  | "hello"
  | "cookie"
  | "hello again"
  | "answer"
  | "flight"
  | "refusal"
  | "other";

/** A hello, the wish for another one with a cookie, that one, the acceptor's flight, the connector's second one, or a no. */
export function nameOf({ kind, from, attempt }: PassingMessage): OpeningMessageName {
  if (kind === frameKind.hello) return attempt.messages === 1 ? "hello" : "hello again";
  if (kind === frameKind.retry) return "cookie";
  if (kind === frameKind.refuse) return "refusal";
  if (kind === frameKind.secure) return from === "acceptor" ? "answer" : "flight";
  return "other";
}

/** What the path makes of a message: another one in its place, or nothing; in front of it, others. */
export type Meddle = (message: PassingMessage) => readonly Uint8Array[];

const none = { onSent: () => {} };

/**
 * Somebody on the path between the engines of this process: sees what they say while sealed sessions open, and may
 * change it before it leaves.
 */
export class NetworkPath implements Disposable {
  readonly attempts: Attempt[] = [];
  readonly #meddle: Meddle;
  readonly #plainSend = PortOnPath.prototype.send;
  /** By the nonce in messages to the connector, which is that of its hello, and to the acceptor, from its terms. */
  readonly #toConnector = new Map<bigint, Attempt>();
  readonly #toAcceptor = new Map<bigint, Attempt>();

  constructor(meddle: Meddle) {
    this.#meddle = meddle;
    const path = this;
    PortOnPath.prototype.send = function (address, slot, bytes, listener) {
      const plain = path.#plainSend;
      const passing = path.#look(Uint8Array.from(this.slab.subarray(slot, slot + bytes)));
      if (passing === undefined) return plain.call(this, address, slot, bytes, listener);
      const messages = path.#meddle(passing);
      for (const message of messages.slice(0, -1)) {
        const other = this.takeSlot();
        if (other < 0) throw new Error("the path has no slot for another message");
        this.slab.set(message, other);
        plain.call(this, address, other, message.byteLength, none);
      }
      const last = messages.at(-1) ?? stray;
      this.slab.set(last, slot);
      plain.call(this, address, slot, last.byteLength, listener);
    };
  }

  [Symbol.dispose](): void {
    PortOnPath.prototype.send = this.#plainSend;
  }

  #look(bytes: Uint8Array): PassingMessage | undefined {
    const view = new DataView(bytes.buffer);
    const nonce = view.getBigUint64(nonceOffset, true);
    if (bytes[0] === sealedMagic) {
      const opened = this.#toAcceptor.get(nonce);
      if (opened !== undefined) opened.isOpen = true;
      return undefined;
    }
    const kind = view.getUint8(messageHeaderBytes);
    const start = messageHeaderBytes + frameHeaderBytes;
    const body = bytes.subarray(start, start + view.getUint32(32, true));
    if (view.getUint32(sessionOffset, true) === 0) this.#noteHello(kind, body);
    else this.#noteTerms(kind, view.getUint32(messageHeaderBytes + 12, true), nonce, body);
    const fromAcceptor = this.#toConnector.get(nonce);
    const attempt =
      view.getUint32(sessionOffset, true) === 0
        ? this.#toConnector.get(nonceOfHello(body) ?? 0n)
        : (fromAcceptor ?? this.#toAcceptor.get(nonce));
    if (attempt === undefined) return undefined;
    attempt.messages++;
    return { from: fromAcceptor === undefined ? "connector" : "acceptor", kind, attempt, bytes };
  }

  #noteHello(kind: number, body: Uint8Array): void {
    const nonce = kind === frameKind.hello ? nonceOfHello(body) : undefined;
    if (nonce === undefined || this.#toConnector.has(nonce)) return;
    const attempt = { number: this.attempts.length, messages: 0, isOpen: false };
    this.attempts.push(attempt);
    this.#toConnector.set(nonce, attempt);
  }

  #noteTerms(kind: number, word: number, nonce: bigint, body: Uint8Array): void {
    const attempt = this.#toConnector.get(nonce);
    if (attempt === undefined || kind !== frameKind.secure || word !== withTerms) return;
    const terms = parseTerms(body.slice(0, acceptorTermsBytes));
    if (typeof terms !== "string") this.#toAcceptor.set(terms.nonce, attempt);
  }
}

function nonceOfHello(body: Uint8Array): bigint | undefined {
  const hello = parseSecureHello(decodeAt(body, 0, body.byteLength));
  return typeof hello === "string" ? undefined : hello.nonce;
}

/** Is dropped wherever it comes: it stands for a message that was lost. */
const stray = new Uint8Array(messageHeaderBytes + frameHeaderBytes);
writeMessageHeader(new DataView(stray.buffer), 0, 1, stray.byteLength, 0x7fff_ffff, new Nonce(1n), 1);
