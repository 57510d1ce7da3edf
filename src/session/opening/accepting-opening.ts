import { createHash } from "node:crypto";
import { RpcError } from "../../base/errors/rpc-error.ts";
import type { Port } from "../../fabric/port.ts";
import type { Identity } from "../../security/identity.ts";
import { SessionCiphers } from "../../security/sealing/session-ciphers.ts";
import { type SuiteName, suites } from "../../security/sealing/suites.ts";
import type { TlsEndpoint } from "../../security/tls-endpoint.ts";
import type { TlsExchange, TlsExchangeListener } from "../../security/tls-exchange.ts";
import type { ExchangeRefusal } from "../../security/tls-failure.ts";
import type { CertificateChain } from "../../security/trust.ts";
import { frameKind } from "../../wire/frame.ts";
import type { Nonce } from "../../wire/message.ts";
import { OpeningChannel } from "./opening-channel.ts";
import { packTerms, readOpeningFrame, type SecureHello } from "./opening-message.ts";
import type { OpeningServices } from "./opening-services.ts";
import type { Sealed, SealedOpening } from "./sealed-opening.ts";
import type { ShareOfTime } from "./share-of-time.ts";

/** A hello that is answered, and what the answer needs. */
export interface AcceptedHello {
  readonly port: Port;
  readonly address: number;
  readonly hello: SecureHello;
  /** The whole message, copied. */
  readonly message: Uint8Array;
  readonly suite: SuiteName;
}

/** Is told how an opening ends: one of the two is called, once. */
export interface AcceptingListener {
  onSealed(sealed: Sealed): void;
  onFailed(refusal: ExchangeRefusal): void;
}

/**
 * The opening of a sealed session at the side that is connected to: a stranger, until its certificate or key is proven.
 * Its steps run when strangers have their turn.
 */
export class AcceptingOpening implements SealedOpening {
  readonly port: Port;
  readonly address: number;
  readonly index: number;
  readonly nonce: Nonce;
  readonly #accepted: AcceptedHello;
  readonly #endpoint: TlsEndpoint;
  readonly #time: ShareOfTime;
  readonly #listener: AcceptingListener;
  readonly #channel: OpeningChannel;
  readonly #terms: Uint8Array;
  /** What the connector has sent and TLS has not taken: bounded, as the channel counts it. */
  readonly #flights: Uint8Array[];
  /** Set while the opening waits for its turn: it has one step at most. */
  #cancelStep: (() => void) | undefined;
  #exchange: TlsExchange | undefined;
  #hasAnswered = false;
  #ended = false;

  constructor(
    accepted: AcceptedHello,
    index: number,
    nonce: Nonce,
    endpoint: TlsEndpoint,
    time: ShareOfTime,
    services: OpeningServices,
    listener: AcceptingListener,
  ) {
    this.port = accepted.port;
    this.address = accepted.address;
    this.index = index;
    this.nonce = nonce;
    this.#accepted = accepted;
    this.#endpoint = endpoint;
    this.#time = time;
    this.#listener = listener;
    this.#channel = new OpeningChannel(this.port, this.address, services, () =>
      this.#fail("its address is dead"),
    );
    this.#channel.addressTo(accepted.hello);
    this.#terms = packTerms({
      session: index,
      nonce: nonce.value,
      messageBytes: this.port.slotBytes,
      suite: suites[accepted.suite],
    });
    this.#flights = [accepted.hello.flight];
    this.#awaitTurn();
  }

  /** The nonce of the hello that it answers, by which another hello may name it. */
  get helloNonce(): bigint {
    return this.#accepted.hello.nonce;
  }

  receive(offset: number, bytes: number): void {
    if (this.#ended) return;
    const { slab, slabView } = this.port;
    const frame = readOpeningFrame(slab, slabView, offset, bytes);
    if (typeof frame === "string") return this.#fail(frame);
    if (frame.kind === frameKind.refuse) return this.#fail("the connector refuses this side");
    if (frame.kind !== frameKind.secure || frame.word !== 0)
      return this.#fail("a frame came that connectors do not send");
    const fault = this.#channel.take(frame.body.byteLength);
    if (fault !== "") return this.#fail(fault);
    this.#flights.push(Uint8Array.from(frame.body));
    this.#awaitTurn();
  }

  onDisconnected(): void {
    this.#fail("its connection has ended");
  }

  /** Gives up. The peer is told the reason, if there is one. */
  end(error?: RpcError): void {
    this.#end(() => (error === undefined ? this.#channel.end() : this.#channel.refuse(error)));
  }

  #awaitTurn(): void {
    this.#cancelStep ??= this.#time.do(() => {
      this.#cancelStep = undefined;
      this.#exchange ??= this.#endpoint.accept(this.#events);
      this.#exchange.take(this.#flights.shift() as Uint8Array);
      if (!this.#ended && this.#flights.length > 0) this.#awaitTurn();
    });
  }

  readonly #events: TlsExchangeListener = {
    onFlight: (bytes) => {
      this.#channel.flight(bytes, this.#hasAnswered ? undefined : this.#terms);
      this.#hasAnswered = true;
    },
    onProven: (identity, chain) => this.#onProven(identity, chain),
    onRefused: (refusal) => {
      const message = `who connects has not proven who it is: ${refusal.why}`;
      this.end(new RpcError({ code: "unauthenticated", message, origin: "local" }));
      this.#listener.onFailed(refusal);
    },
  };

  #onProven(identity: Identity, chain: CertificateChain): void {
    const exchange = this.#exchange;
    if (this.#ended || exchange === undefined) return;
    const { message, suite, hello } = this.#accepted;
    const context = createHash("sha256").update(message).update(this.#terms).digest();
    let ciphers: SessionCiphers;
    try {
      ciphers = SessionCiphers.from(exchange.exportSecret(context), "acceptor", suite);
    } catch (error) {
      return this.#fail((error as Error).message);
    }
    this.#end(() => this.#channel.close());
    this.#listener.onSealed({ opening: this, path: hello, identity, chain, ciphers });
  }

  #fail(why: string): void {
    if (this.#ended) return;
    this.#end(() => this.#channel.end());
    this.#listener.onFailed({ refusal: "protocol", why });
  }

  #end(letGo: () => void): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#cancelStep?.();
    this.#flights.length = 0;
    this.#exchange?.close();
    letGo();
  }
}
