import type { RpcCode } from "../../base/errors/code.ts";
import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { Port } from "../../fabric/port.ts";
import { suites } from "../../security/sealing/suites.ts";
import type { ResolvedSecurity } from "../../security/security-options.ts";
import type { TlsEndpoint } from "../../security/tls-endpoint.ts";
import type { ExchangeRefusal } from "../../security/tls-failure.ts";
import type { ReturnPath } from "../../wire/handshake.ts";
import { Nonce, protocolVersion } from "../../wire/message.ts";
import { type AcceptedHello, AcceptingOpening } from "./accepting-opening.ts";
import { ConnectingOpening, type ConnectingTarget } from "./connecting-opening.ts";
import { ConnectSilence, cameBack } from "./end-reasons.ts";
import { HandshakePlaces } from "./handshake-places.ts";
import { OpeningChannel } from "./opening-channel.ts";
import type { SecureHello } from "./opening-message.ts";
import type { OpeningServices } from "./opening-services.ts";
import type { Sealed, SealedOpening } from "./sealed-opening.ts";
import { ShareOfTime } from "./share-of-time.ts";

/** What openings need of the sessions among which theirs will be. */
export interface OpeningHost {
  readonly services: OpeningServices;
  takeIndex(): number;
  giveIndex(index: number): void;
  /** Enters a return address into the port; undefined when nobody can be there. */
  admit(port: Port, path: ReturnPath): number | undefined;
  /** The same for one answer; undefined also when too many answers are on their way. */
  admitForAnswer(port: Port, path: ReturnPath): number | undefined;
  /** Says no in the clear. */
  refuse(port: Port, path: ReturnPath, code: RpcCode, message: string): void;
  /** A peer has proven who it is, and waits for its welcome. */
  onAccepted(sealed: Sealed): void;
}

/** Where a connector wants to go, and how long it waits. */
export interface SealedTarget extends Omit<ConnectingTarget, "hello"> {
  readonly replyTo: Uint8Array;
  /** For the first answer, and for the whole handshake, in milliseconds. */
  readonly answerMs: number;
  readonly timeoutMs: number;
  /** The nonce of a former hello that was not answered. */
  readonly repeats?: bigint | undefined;
}

/** The handshake of a connector is done; its session awaits the welcome. */
export interface ConnectedOpening extends Sealed {
  readonly opening: ConnectingOpening;
  /** Set by whoever has the session: the acceptor refuses instead of welcoming. */
  onRefused(error: RpcError): void;
}

/** An opening with a peer that connects. */
interface AcceptedOpening {
  readonly opening: AcceptingOpening;
  /** The index that answers to its hello carry. */
  readonly session: number;
  leave(): void;
}

/**
 * The openings of an engine's sealed sessions: TLS handshakes with peers that have no session yet. Those of strangers are
 * bounded in number, bytes, time and work (`handshakes` of the security options), and count into no other limit.
 */
export class SealedOpenings {
  readonly #host: OpeningHost;
  readonly #endpoint: TlsEndpoint;
  readonly #options: ResolvedSecurity;
  readonly #places: HandshakePlaces;
  readonly #time: ShareOfTime;
  /** By the index that messages to them carry. */
  readonly #openings = new Map<number, SealedOpening>();
  /** Those of peers that connect, by the nonce of their hello. */
  readonly #accepting = new Map<bigint, AcceptedOpening>();
  readonly #connecting = new Set<(error: RpcError) => void>();

  constructor(host: OpeningHost, endpoint: TlsEndpoint, options: ResolvedSecurity) {
    this.#host = host;
    this.#endpoint = endpoint;
    this.#options = options;
    const { maxOpen, timeoutMs, share } = options.handshakes;
    const { realClock } = host.services;
    this.#places = new HandshakePlaces(maxOpen, timeoutMs, realClock);
    this.#time = new ShareOfTime(realClock, share);
  }

  /** How many handshakes are open, in both roles. */
  get open(): number {
    return this.#openings.size;
  }

  /** Takes a message for an opening. False: no opening has this index and nonce at this port. */
  receive(port: Port, index: number, offset: number, bytes: number): boolean {
    const opening = this.#openings.get(index);
    if (opening === undefined || opening.port !== port) return false;
    if (!opening.nonce.isIn(port.slabView, offset)) return false;
    opening.receive(offset, bytes);
    return true;
  }

  /** The connection with the peer behind an address has ended. */
  onDisconnected(port: Port, address: number): void {
    for (const opening of this.#openings.values())
      if (opening.port === port && opening.address === address) return opening.onDisconnected();
  }

  // ---- at the side that connects -----------------------------------------------------------------------------------

  /**
   * Opens a session towards an address. Resolves when the peer has proven who it is; the sealed welcome follows. Rejects
   * with `unauthenticated` when it has not, and with ConnectSilence when it does not answer. The address is let go then.
   */
  connect(target: SealedTarget): Promise<ConnectedOpening> {
    const { port, replyTo, repeats, peerName, timeoutMs, answerMs } = target;
    const { services } = this.#host;
    const versions: [number, number] = [protocolVersion, protocolVersion];
    const hello = { versions, address: replyTo, messageBytes: port.slotBytes, repeats };
    return new Promise((resolve, reject) => {
      const nonce = Nonce.draw();
      const index = this.#host.takeIndex();
      const connected = { onRefused: (_error: RpcError) => {} };
      let cancelTimer = () => {};
      const done = (): void => {
        cancelTimer();
        this.#openings.delete(index);
        this.#connecting.delete(giveUp);
      };
      const fail = (error: RpcError, refusal?: ExchangeRefusal): void => {
        if (refusal !== undefined)
          services.securityMeter.onRefused({ ...refusal, peer: peerName, identity: undefined });
        done();
        this.#host.giveIndex(index);
        reject(error);
      };
      const giveUp = (error: RpcError): void => {
        opening.end();
        fail(error);
      };
      const wait = (ms: number): void => {
        cancelTimer();
        cancelTimer = services.realClock.timer(ms, () =>
          giveUp(new ConnectSilence(peerName, ms, nonce.value)),
        );
      };
      const endMs = services.realClock.now() + timeoutMs;
      const opening = new ConnectingOpening(
        { ...target, hello },
        index,
        nonce,
        this.#endpoint,
        this.#options.suites,
        services,
        {
          onAnswered: () => wait(Math.max(1, endMs - services.realClock.now())),
          onSealed: (sealed) => {
            cancelTimer();
            this.#connecting.delete(giveUp);
            resolve(Object.assign(connected, sealed, { opening }));
          },
          onFailed: fail,
          onRefusedLate: (error) => connected.onRefused(error),
          onReleased: () => void this.#openings.delete(index),
        },
      );
      this.#openings.set(index, opening);
      this.#connecting.add(giveUp);
      wait(answerMs);
    });
  }

  // ---- at the side that is connected to ----------------------------------------------------------------------------

  /** A peer asks for a sealed session by the message at `offset`. */
  onHello(port: Port, hello: SecureHello, offset: number, bytes: number): void {
    const { counters } = this.#host.services;
    // One that was seen on the way and sent again must not take the place of the first.
    if (this.#accepting.has(hello.nonce)) return void counters.strays++;
    const suite = this.#options.suites.find((name) => hello.suites.includes(suites[name]));
    if (suite === undefined) return this.#onRefused(port, hello, noSuite);
    const admission = this.#places.admit(hello, hello.cookie);
    // The peer says hello again.
    if (admission === "full") return this.#tell(port, crowded);
    if (admission === "retry") return this.#sayRetry(port, hello);
    const message = Uint8Array.prototype.slice.call(port.slab, offset, offset + bytes);
    const accept = (): void => {
      // It may have been answered while it waited, under another return address.
      if (this.#accepting.has(hello.nonce)) return void counters.strays++;
      const address = this.#host.admit(port, hello);
      if (address !== undefined) this.#accept({ port, address, hello, message, suite });
    };
    if (admission === "answer") accept();
    else if (!this.#places.wait(hello, accept)) this.#tell(port, crowded);
  }

  /** The connector has given up the hello with this nonce. */
  forget(helloNonce: bigint): void {
    this.#leave(helloNonce)?.end();
  }

  /** A message came for a session that this side does not have: it may be an answer of this engine to a hello. */
  onStray(index: number, nonce: bigint): void {
    const entry = this.#accepting.get(nonce);
    if (entry?.session !== index) return;
    this.#leave(nonce)?.end();
    this.#tell(entry.opening.port, misaddressed);
  }

  /** The engine closes. */
  close(error: RpcError): void {
    for (const giveUp of [...this.#connecting]) giveUp(error);
    this.#places.close();
    for (const nonce of [...this.#accepting.keys()]) this.#leave(nonce)?.end(error);
    this.#time.close();
  }

  #accept(accepted: AcceptedHello): void {
    const { services } = this.#host;
    const { port, hello } = accepted;
    const index = this.#host.takeIndex();
    const opening = new AcceptingOpening(
      accepted,
      index,
      Nonce.draw(),
      this.#endpoint,
      this.#time,
      services,
      {
        onSealed: (sealed) => {
          services.securityMeter.handshakes++;
          this.#leave(hello.nonce, true);
          this.#host.onAccepted(sealed);
        },
        onFailed: (refusal) => {
          this.#leave(hello.nonce);
          this.#tell(port, refusal);
        },
      },
    );
    const shed = (): void => {
      this.#leave(hello.nonce)?.end();
      this.#tell(port, crowded);
    };
    const givePlace = this.#places.take(hello, this.#places.isProven(hello, hello.cookie), shed);
    services.securityMeter.openHandshakes++;
    const { timeoutMs } = this.#options.handshakes;
    const onLate = (): void => {
      this.#leave(hello.nonce)?.end();
      this.#tell(port, { refusal: "time", why: `the handshake took longer than ${timeoutMs} ms` });
    };
    const cancelTimer = services.realClock.timer(timeoutMs, onLate, true);
    this.#openings.set(index, opening);
    this.#accepting.set(hello.nonce, {
      opening,
      session: hello.session,
      leave() {
        cancelTimer();
        givePlace();
        services.securityMeter.openHandshakes--;
      },
    });
  }

  /** `keepsIndex`: its session has it from now on. */
  #leave(helloNonce: bigint, keepsIndex = false): AcceptingOpening | undefined {
    const entry = this.#accepting.get(helloNonce);
    if (entry === undefined) return undefined;
    const { opening, leave } = entry;
    this.#accepting.delete(helloNonce);
    this.#openings.delete(opening.index);
    leave();
    if (!keepsIndex) this.#host.giveIndex(opening.index);
    return opening;
  }

  /** Nothing is kept of a peer that must show first that it is where it says. */
  #sayRetry(port: Port, hello: SecureHello): void {
    const address = this.#host.admitForAnswer(port, hello);
    if (address === undefined) return;
    const channel = new OpeningChannel(port, address, this.#host.services, () => {});
    channel.addressTo(hello);
    channel.retry(this.#places.cookieFor(hello));
  }

  #onRefused(port: Port, hello: SecureHello, refusal: ExchangeRefusal): void {
    this.#host.refuse(port, hello, "unauthenticated", refusal.why);
    this.#tell(port, refusal);
  }

  #tell(port: Port, refusal: ExchangeRefusal): void {
    const peer = `peer over ${port.scheme}`;
    this.#host.services.securityMeter.onRefused({ ...refusal, peer, identity: undefined });
  }
}

const noSuite: ExchangeRefusal = { refusal: "protocol", why: "no cipher is accepted by both sides" };
const crowded: ExchangeRefusal = { refusal: "crowded", why: "too many handshakes were open" };
const misaddressed: ExchangeRefusal = { refusal: "protocol", why: cameBack };
