import { createHash } from "node:crypto";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { leastDecodedBytes } from "../../base/flow/engine-limits.ts";
import type { Port } from "../../fabric/port.ts";
import type { Identity } from "../../security/identity.ts";
import { SessionCiphers } from "../../security/sealing/session-ciphers.ts";
import { type SuiteName, suites } from "../../security/sealing/suites.ts";
import type { TlsEndpoint } from "../../security/tls-endpoint.ts";
import type { TlsExchange, TlsExchangeListener } from "../../security/tls-exchange.ts";
import type { ExchangeRefusal } from "../../security/tls-failure.ts";
import type { CertificateChain } from "../../security/trust.ts";
import { decodeAt, encode } from "../../wire/codec.ts";
import { frameKind } from "../../wire/frame.ts";
import type { ReturnPath } from "../../wire/handshake.ts";
import type { Nonce } from "../../wire/message.ts";
import { brokenProtocol, closedByPeer, sendFailure } from "./end-reasons.ts";
import { OpeningChannel } from "./opening-channel.ts";
import {
  acceptorTermsBytes,
  cookieBytes,
  openingBodyBytes,
  openingMessage,
  packSecureHello,
  parseTerms,
  readOpeningFrame,
  type SecureHello,
  withTerms,
} from "./opening-message.ts";
import type { OpeningServices } from "./opening-services.ts";
import type { Sealed, SealedOpening } from "./sealed-opening.ts";

/** Whom a connector wants to reach, and what it says of itself in the clear. */
export interface ConnectingTarget {
  readonly port: Port;
  readonly address: number;
  readonly peerName: string;
  /** What the peer's certificate must prove. */
  readonly name: string;
  readonly hello: Pick<SecureHello, "versions" | "address" | "messageBytes" | "repeats">;
}

/** Is told how an opening goes: `onSealed` or `onFailed` is called once, unless it is ended before. */
export interface OpeningListener {
  /** The acceptor has answered. */
  onAnswered(): void;
  onSealed(sealed: Sealed): void;
  /** `refusal`: why this side refuses the peer. */
  onFailed(error: RpcError, refusal?: ExchangeRefusal): void;
  /**
   * The acceptor says no when the keys exist already at this side: it has not judged the connector's certificate before.
   * Nobody proves this word; who could forge it could as well cut the connection.
   */
  onRefusedLate(error: RpcError): void;
  /** TLS has been let go. */
  onReleased(): void;
}

/**
 * The opening of a sealed session at the side that connects. It says hello with the first flight of TLS, and comes with
 * a cookie where the acceptor wants one. The keys depend on the hello as it was sent, and on the acceptor's terms.
 */
export class ConnectingOpening implements SealedOpening {
  readonly port: Port;
  readonly address: number;
  readonly index: number;
  readonly nonce: Nonce;
  readonly #target: ConnectingTarget;
  readonly #suites: readonly SuiteName[];
  readonly #listener: OpeningListener;
  readonly #channel: OpeningChannel;
  readonly #exchange: TlsExchange;
  #flight: Uint8Array | undefined;
  #helloMessage: Uint8Array = new Uint8Array(0);
  #wasRetried = false;
  #path: ReturnPath | undefined;
  #suite: SuiteName | undefined;
  #context: Uint8Array = new Uint8Array(0);
  #ended = false;
  #sealed = false;

  constructor(
    target: ConnectingTarget,
    index: number,
    nonce: Nonce,
    endpoint: TlsEndpoint,
    accepted: readonly SuiteName[],
    services: OpeningServices,
    listener: OpeningListener,
  ) {
    this.port = target.port;
    this.address = target.address;
    this.index = index;
    this.nonce = nonce;
    this.#target = target;
    this.#suites = accepted;
    this.#listener = listener;
    this.#channel = new OpeningChannel(this.port, this.address, services, (status) =>
      this.#fail(sendFailure({ ...target, transferRefused: false }, status)),
    );
    this.#exchange = endpoint.connect(target.name, this.#events);
  }

  receive(offset: number, bytes: number): void {
    if (this.#ended) return;
    const { slab, slabView } = this.port;
    const frame = readOpeningFrame(slab, slabView, offset, bytes);
    if (typeof frame === "string") return this.#fault(frame);
    const { kind, word, body } = frame;
    if (this.#sealed) {
      if (kind === frameKind.refuse) this.#listener.onRefusedLate(this.#refusal(word, body));
      return;
    }
    if (kind === frameKind.refuse) this.#onRefused(word, body);
    else if (kind === frameKind.retry) this.#onRetry(body);
    else this.#onFlight(word, body);
  }

  onDisconnected(): void {
    this.#fail(sendFailure({ ...this.#target, transferRefused: false }, cancelled));
  }

  /** Gives up, and tells nobody. */
  end(): void {
    if (!this.#sealed) this.#end(() => this.#channel.end());
  }

  /** The acceptor has shown that it has the keys, or the session has ended: TLS is not needed any more. */
  release(): void {
    this.#ended = true;
    this.#exchange.close();
    this.#channel.close();
    this.#listener.onReleased();
  }

  readonly #events: TlsExchangeListener = {
    onFlight: (bytes) => {
      if (this.#path !== undefined) this.#channel.flight(bytes);
      else if (this.#flight === undefined) {
        this.#flight = bytes;
        this.#sayHello();
      } else this.#fault("TLS goes on before the acceptor has answered");
    },
    onProven: (identity, chain) => this.#onProven(identity, chain),
    onRefused: (refusal) => {
      const { why } = refusal;
      const error = unproven(`${this.#target.peerName} has not proven who it is: ${why}`);
      this.#end(() => this.#channel.refuse(unproven(`the connector refuses: ${why}`)));
      this.#listener.onFailed(error, refusal);
    },
  };

  #sayHello(cookie?: Uint8Array): void {
    const { hello, peerName } = this.#target;
    const body = encode(
      packSecureHello({
        ...hello,
        session: this.index,
        nonce: this.nonce.value,
        suites: this.#suites.map((name) => suites[name]),
        flight: this.#flight as Uint8Array,
        cookie,
      }),
    );
    if (body.byteLength > openingBodyBytes(this.port.slotBytes)) {
      const message = `the hello to ${peerName} does not fit a message of ${this.port.slotBytes} bytes`;
      return this.#fail(new RpcError({ code: "resource_exhausted", message, origin: "local" }));
    }
    this.#helloMessage = openingMessage(frameKind.hello, 0, body);
    this.#channel.hello(this.#helloMessage);
  }

  #onRetry(cookie: Uint8Array): void {
    if (this.#path !== undefined || this.#wasRetried || this.#flight === undefined)
      return this.#fault("the acceptor wants a hello again that it has answered");
    if (cookie.byteLength !== cookieBytes) return this.#fault("a cookie has another length");
    this.#wasRetried = true;
    this.#listener.onAnswered();
    this.#sayHello(Uint8Array.from(cookie));
  }

  #onFlight(word: number, body: Uint8Array): void {
    const excess = this.#channel.take(body.byteLength);
    if (excess !== "") return this.#fault(excess);
    if ((word === withTerms) !== (this.#path === undefined))
      return this.#fault("the acceptor's terms are not where they belong");
    const flight = Uint8Array.from(body);
    if (word === withTerms) {
      const fault = this.#takeTerms(flight);
      if (fault !== "") return this.#fault(fault);
      this.#listener.onAnswered();
    }
    this.#exchange.take(word === withTerms ? flight.subarray(acceptorTermsBytes) : flight);
  }

  #takeTerms(bytes: Uint8Array): string {
    const terms = parseTerms(bytes);
    if (typeof terms === "string") return terms;
    const suite = this.#suites.find((name) => suites[name] === terms.suite);
    if (suite === undefined) return `the acceptor chose suite ${terms.suite}, which was not offered`;
    const { session, nonce, messageBytes } = terms;
    this.#suite = suite;
    this.#path = { session, nonce, messageBytes, address: noAddress };
    this.#channel.addressTo(terms);
    const hash = createHash("sha256")
      .update(this.#helloMessage)
      .update(bytes.subarray(0, acceptorTermsBytes));
    this.#context = hash.digest();
    return "";
  }

  #onProven(identity: Identity, chain: CertificateChain): void {
    if (this.#ended || this.#path === undefined || this.#suite === undefined) return;
    let ciphers: SessionCiphers;
    try {
      ciphers = SessionCiphers.from(this.#exchange.exportSecret(this.#context), "connector", this.#suite);
    } catch (error) {
      return this.#fail(asRpcError(error));
    }
    this.#sealed = true;
    this.#listener.onSealed({ opening: this, path: this.#path, identity, chain, ciphers });
  }

  #onRefused(word: number, body: Uint8Array): void {
    const error = this.#refusal(word, body);
    this.#end(() => this.#channel.end());
    this.#listener.onFailed(error);
  }

  #refusal(word: number, body: Uint8Array): RpcError {
    let said: unknown;
    try {
      const copy = Buffer.from(body);
      said = decodeAt(copy, 0, copy.byteLength, undefined, true, leastDecodedBytes);
    } catch {
      // The code alone says enough.
    }
    return closedByPeer(this.#target.peerName, frameKind.refuse, word, said);
  }

  #fault(text: string): void {
    this.#fail(brokenProtocol(this.#target.peerName, text));
  }

  #fail(error: RpcError): void {
    if (this.#ended || this.#sealed) return;
    this.#end(() => this.#channel.end());
    this.#listener.onFailed(error);
  }

  #end(letGo: () => void): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#exchange.close();
    letGo();
  }
}

function unproven(message: string): RpcError {
  return new RpcError({ code: "unauthenticated", message, origin: "local", retryable: false });
}

/** What the ciphers throw where nothing can be sealed on this machine. */
function asRpcError(error: unknown): RpcError {
  if (error instanceof RpcError) return error;
  return new RpcError({ code: "internal", message: (error as Error).message, origin: "local", cause: error });
}

const cancelled = 125; // ECANCELED
const noAddress = new Uint8Array(0);
