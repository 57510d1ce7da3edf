import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { Port } from "../../fabric/port.ts";
import { encode } from "../../wire/codec.ts";
import { errorWord } from "../../wire/fault.ts";
import { frameKind } from "../../wire/frame.ts";
import type { ReturnPath } from "../../wire/handshake.ts";
import { goodbyeBody } from "./end-reasons.ts";
import {
  acceptorTermsBytes,
  openingBodyBytes,
  openingHeaderBytes,
  openingMessage,
  withTerms,
} from "./opening-message.ts";
import { OpeningSender } from "./opening-sender.ts";
import type { OpeningServices } from "./opening-services.ts";
import { maxHandshakeBytes } from "./sealed-opening.ts";

/** What one side of an opening says in the clear, and how much it takes. */
export class OpeningChannel {
  readonly #port: Port;
  readonly #address: number;
  readonly #services: OpeningServices;
  readonly #sender: OpeningSender;
  #path: Omit<ReturnPath, "address"> | undefined;
  #takenBytes = 0;

  constructor(port: Port, address: number, services: OpeningServices, onFailed: (status: number) => void) {
    this.#port = port;
    this.#address = address;
    this.#services = services;
    this.#sender = new OpeningSender(port, address, services.progress, onFailed);
  }

  /** Where the peer is: what is said from now on is meant for its session. */
  addressTo(path: Omit<ReturnPath, "address">): void {
    this.#path = path;
  }

  hello(message: Uint8Array): void {
    this.#sender.send(message);
  }

  /** A flight of TLS, in as many messages as it needs. The terms of an acceptor precede its first one. */
  flight(bytes: Uint8Array, terms?: Uint8Array): void {
    const path = this.#path;
    if (path === undefined) return;
    const whole = terms === undefined ? bytes : Buffer.concat([terms, bytes]);
    const most = openingBodyBytes(Math.min(path.messageBytes, this.#port.slotBytes));
    for (let at = 0; at < whole.byteLength; at += most) {
      const word = terms !== undefined && at === 0 ? withTerms : 0;
      const piece = whole.subarray(at, at + most);
      this.#sender.send(openingMessage(frameKind.secure, word, piece, path));
    }
  }

  /** Counts a frame of the handshake with its headers, so that many short ones are not free. Returns its fault, or "". */
  take(bodyBytes: number): string {
    if (bodyBytes === 0) return "an empty frame of the handshake came";
    this.#takenBytes += openingHeaderBytes + bodyBytes;
    const mostBytes = maxHandshakeBytes + acceptorTermsBytes;
    return this.#takenBytes <= mostBytes ? "" : "the handshake is too long";
  }

  /** The peer is told why, if it can be, and its address is let go. */
  refuse(error: RpcError): void {
    const path = this.#path;
    if (path !== undefined) {
      const body = encode(goodbyeBody(error));
      this.#sender.send(openingMessage(frameKind.refuse, errorWord(error), body, path));
    }
    this.#forget(path !== undefined);
  }

  /** The peer is asked to say hello again with this cookie, and its address is let go. */
  retry(cookie: Uint8Array): void {
    if (this.#path !== undefined) this.#sender.send(openingMessage(frameKind.retry, 0, cookie, this.#path));
    this.#forget(true);
  }

  /** Nothing more is said, and the peer's address is let go. */
  end(): void {
    this.#forget(false);
  }

  /** What was said leaves; the address is the session's from now on. */
  close(): void {
    this.#sender.close(() => {});
  }

  /** Lets the address go when what was said has left, or will not. */
  #forget(messagesLeave: boolean): void {
    let forgotten = false;
    const forget = (): void => {
      cancelTimer();
      if (!forgotten) this.#port.forget(this.#address);
      forgotten = true;
    };
    const cancelTimer = this.#services.realClock.timer(lastMessagesMs, forget, true);
    this.#sender.close(forget, !messagesLeave);
    if (!messagesLeave) forget();
  }
}

/** How long the last messages of an opening may take to leave. */
const lastMessagesMs = 1000;
