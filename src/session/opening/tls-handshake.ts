/*
 * The part `session/opening`: TLS handshakes, the bounds of strangers, and the reasons why sessions end.
 * Promises: keys exist only after the peer has proven its identity. Strangers take bounded places, bytes and time.
 * Takes: TLS and the key schedule from `security`, the bytes of hellos from `wire`.
 */

import { createHash } from "node:crypto";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { networkOfAddress } from "../../fabric/host.ts";
import { type HandshakeRole, SessionCiphers } from "../../security/sealing/session-ciphers.ts";
import { type SuiteName, suites } from "../../security/sealing/suites.ts";
import type { TlsEndpoint } from "../../security/tls-endpoint.ts";
import type { PeerProof, TlsExchange, TlsExchangeListener } from "../../security/tls-exchange.ts";
import type { ExchangeRefusal } from "../../security/tls-failure.ts";
import { encode } from "../../wire/encode-value.ts";
import { type FrameHead, frameHeaderBytes, frameKind } from "../../wire/frame.ts";
import type { ReturnPath } from "../../wire/handshake.ts";
import {
  acceptorTermsBytes,
  cookieBytes,
  helloMessage,
  packSecureHello,
  packTerms,
  parseTerms,
  type SecureHello,
  withTerms,
} from "../../wire/hello.ts";
import { messageHeaderBytes, type Nonce, protocolVersion } from "../../wire/message.ts";
import { brokenProtocol, Unproven } from "./end-reasons.ts";
import type { ShareOfTime } from "./share-of-time.ts";

/** The most bytes of one handshake's messages, in each direction. */
const maxHandshakeBytes = 65_536;

/** The result of a handshake. The session closes the ciphers. */
export interface TlsProof extends PeerProof {
  readonly ciphers: SessionCiphers;
}

/** The session of a TLS handshake. */
export interface TlsSession {
  readonly port: { readonly slotBytes: number };
  readonly index: number;
  readonly nonce: Nonce;
  readonly peerName: string;
  /** Takes frames for the peer. They are in the clear until the session has keys. */
  readonly outbox: {
    readonly maxBodyBytes: number;
    raw(head: FrameHead, flags: number, body: Uint8Array): void;
  };
  /** Sets the peer's address: later frames are meant for its session. */
  addressTo(path: ReturnPath): void;
  /** Sends the queued frames now. */
  flush(): void;
  end(reason: RpcError): void;
}

/** Takes the proof of a handshake. A failed handshake ends the session instead. */
type OnProof = (proof: TlsProof) => void;

/**
 * The TLS handshake of a session, the first step of its opening. TLS runs over `secure` frames, in the clear. The keys
 * depend on the hello as it was sent and on the acceptor's terms.
 */
abstract class TlsHandshake implements TlsExchangeListener {
  protected readonly session: TlsSession;
  readonly #onProof: OnProof;
  readonly #role: HandshakeRole;
  #takenBytes = 0;
  /** The input of the keys: the whole message of the hello, and the acceptor's terms. */
  protected hello = noBytes;
  protected terms = noBytes;
  protected suite: SuiteName | undefined;
  protected exchange: TlsExchange | undefined;
  protected isClosed = false;

  constructor(session: TlsSession, onProof: OnProof, role: HandshakeRole) {
    this.session = session;
    this.#onProof = onProof;
    this.#role = role;
  }

  /**
   * Takes the body of a `secure` frame in a message. `word` is the frame's. The body counts with its headers, so that
   * many short ones are not free. Returns the fault, or "".
   */
  take(word: number, body: Uint8Array): string {
    if (this.isClosed) return "";
    if (body.byteLength === 0) return "an empty frame of the handshake came";
    this.#takenBytes += messageHeaderBytes + frameHeaderBytes + body.byteLength;
    if (this.#takenBytes > maxHandshakeBytes + acceptorTermsBytes) return "the handshake is too long";
    return this.takeFlight(word, Uint8Array.from(body));
  }

  protected abstract takeFlight(word: number, bytes: Uint8Array): string;

  /** Sends bytes of TLS in as many frames as necessary. `word`: of the first frame. */
  protected send(bytes: Uint8Array, word = 0): void {
    const { outbox } = this.session;
    const most = outbox.maxBodyBytes;
    for (let at = 0; at < bytes.byteLength; at += most) {
      const head = { kind: frameKind.secure, method: 0, callId: 0, word: at === 0 ? word : 0 };
      outbox.raw(head, 0, bytes.subarray(at, at + most));
    }
    this.session.flush();
  }

  /** Closes TLS. Nothing is sent to the peer. */
  close(): void {
    this.isClosed = true;
    this.exchange?.close();
  }

  abstract onFlight(bytes: Buffer): void;

  /** Makes the keys of a peer that has proven its identity. A refusal ends the session. */
  onResult(result: PeerProof | ExchangeRefusal): void {
    const { exchange, suite } = this;
    if (this.isClosed || exchange === undefined) return;
    if ("refusal" in result) return this.session.end(new Unproven(result, this.refusalText(result)));
    if (suite === undefined) return;
    let ciphers: SessionCiphers;
    try {
      const context = createHash("sha256").update(this.hello).update(this.terms).digest();
      ciphers = SessionCiphers.from(exchange.exportSecret(context), this.#role, suite);
    } catch (error) {
      return this.session.end(asRpcError(error));
    }
    this.#onProof({ ...result, ciphers });
  }

  protected abstract refusalText(refusal: ExchangeRefusal): string;
}

/** The peer of a connector, and the terms of its handshake. */
export interface ConnectingTls {
  readonly endpoint: TlsEndpoint;
  /** The name that the peer's certificate must prove. */
  readonly name: string;
  /** The ciphers that this side accepts, in order of preference. */
  readonly suites: readonly SuiteName[];
  /** The address of this side, and the former hello that it repeats. */
  readonly hello: Pick<SecureHello, "address" | "repeats">;
}

/**
 * The connecting side. It says hello with the first flight of TLS, and again with a cookie if the acceptor asks for
 * one.
 */
export class ConnectingHandshake extends TlsHandshake {
  readonly #target: ConnectingTls;
  #flight: Uint8Array | undefined;
  #wasRetried = false;
  #isAnswered = false;

  constructor(session: TlsSession, onProof: OnProof, target: ConnectingTls) {
    super(session, onProof, "connector");
    this.#target = target;
    this.exchange = target.endpoint.connect(target.name, this);
  }

  onFlight(bytes: Buffer): void {
    if (this.#isAnswered) return this.send(bytes);
    if (this.#flight === undefined) {
      this.#flight = bytes;
      return this.#sayHello();
    }
    const { peerName } = this.session;
    this.session.end(brokenProtocol(peerName, "TLS goes on before the acceptor has answered"));
  }

  /** The acceptor asks for the hello again, with this cookie. Returns the fault, or "". */
  retry(cookie: Uint8Array): string {
    if (this.#wasRetried) return "the acceptor wants a hello again that it has answered";
    if (cookie.byteLength !== cookieBytes) return "a cookie has another length";
    this.#wasRetried = true;
    this.#sayHello(Uint8Array.from(cookie));
    return "";
  }

  #sayHello(cookie?: Uint8Array): void {
    const { session } = this;
    const { hello, suites: accepted } = this.#target;
    const body = encode(
      packSecureHello({
        ...hello,
        versions: [protocolVersion, protocolVersion],
        session: session.index,
        nonce: session.nonce.value,
        messageBytes: session.port.slotBytes,
        suites: accepted.map((name) => suites[name]),
        flight: this.#flight as Uint8Array,
        cookie,
      }),
    );
    if (body.byteLength > session.outbox.maxBodyBytes) {
      const message = `the hello to ${session.peerName} does not fit a message of ${session.port.slotBytes} bytes`;
      return session.end(new RpcError({ code: "resource_exhausted", message }));
    }
    this.hello = helloMessage(body);
    session.outbox.raw({ kind: frameKind.hello, method: 0, callId: 0, word: 0 }, 0, body);
    session.flush();
  }

  protected override takeFlight(word: number, bytes: Uint8Array): string {
    if ((word === withTerms) === this.#isAnswered) return "the acceptor's terms are not where they belong";
    if (!this.#isAnswered) {
      const fault = this.#takeTerms(bytes);
      if (fault !== "") return fault;
    }
    this.exchange?.take(word === withTerms ? bytes.subarray(acceptorTermsBytes) : bytes);
    return "";
  }

  #takeTerms(bytes: Uint8Array): string {
    const terms = parseTerms(bytes);
    if (typeof terms === "string") return terms;
    this.suite = this.#target.suites.find((name) => suites[name] === terms.suite);
    if (this.suite === undefined) return `the acceptor chose suite ${terms.suite}, which was not offered`;
    this.terms = bytes.subarray(0, acceptorTermsBytes);
    this.#isAnswered = true;
    this.session.addressTo(terms);
    return "";
  }

  protected override refusalText({ why }: ExchangeRefusal): string {
    return `${this.session.peerName} has not proven who it is: ${why}`;
  }
}

/** A hello to answer by a handshake, and the parts of the answer. */
export interface AcceptingTls {
  readonly endpoint: TlsEndpoint;
  readonly hello: SecureHello;
  /** The whole message of the hello, copied. */
  readonly message: Uint8Array;
  readonly suite: SuiteName;
  /** The share of time in which its steps run. */
  readonly time: ShareOfTime;
}

/** The accepting side. The peer is a stranger until its proof, so each step waits for its share of time. */
export class AcceptingHandshake extends TlsHandshake {
  readonly #endpoint: TlsEndpoint;
  readonly #time: ShareOfTime;
  readonly #host: string;
  /** Bytes from the connector that TLS has not taken. `take` bounds them. */
  readonly #flights: Uint8Array[];
  /** Set while the handshake waits for its turn: at most one step waits. */
  #cancelStep: (() => void) | undefined;
  #hasAnswered = false;

  constructor(
    session: TlsSession,
    onProof: OnProof,
    { endpoint, hello, message, suite, time }: AcceptingTls,
  ) {
    super(session, onProof, "acceptor");
    this.#endpoint = endpoint;
    this.#time = time;
    this.#host = networkOfAddress(hello.address);
    this.#flights = [hello.flight];
    this.hello = message;
    this.suite = suite;
    this.terms = packTerms({
      session: session.index,
      nonce: session.nonce.value,
      messageBytes: session.port.slotBytes,
      suite: suites[suite],
    });
    this.#awaitTurn();
  }

  onFlight(bytes: Buffer): void {
    if (this.isClosed) return;
    if (this.#hasAnswered) return this.send(bytes);
    this.#hasAnswered = true;
    this.send(Buffer.concat([this.terms, bytes]), withTerms);
  }

  override close(): void {
    super.close();
    this.#cancelStep?.();
    this.#flights.length = 0;
  }

  protected override takeFlight(word: number, bytes: Uint8Array): string {
    if (word !== 0) return "a frame came that connectors do not send";
    this.#flights.push(bytes);
    this.#awaitTurn();
    return "";
  }

  #awaitTurn(): void {
    this.#cancelStep ??= this.#time.do(this.#host, () => {
      this.#cancelStep = undefined;
      this.exchange ??= this.#endpoint.accept(this);
      this.exchange.take(this.#flights.shift() as Uint8Array);
      if (!this.isClosed && this.#flights.length > 0) this.#awaitTurn();
    });
  }

  protected override refusalText({ told, why }: ExchangeRefusal): string {
    return `who connects has not proven who it is: ${told ?? why}`;
  }
}

/** The error of the ciphers when this machine cannot seal. */
function asRpcError(error: unknown): RpcError {
  if (error instanceof RpcError) return error;
  return new RpcError({ code: "internal", message: (error as Error).message, cause: error });
}

const noBytes: Uint8Array = new Uint8Array(0);
