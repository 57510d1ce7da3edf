import type { WindowLimits } from "../../base/flow/in-flight-window.ts";
import type { PeerAccount } from "../../base/flow/peer-account.ts";
import type { Port } from "../../fabric/port.ts";
import type { Identity } from "../../security/identity.ts";
import type { SessionCiphers } from "../../security/sealing/session-ciphers.ts";
import type { BulkSealing } from "../../transfer/sealed/bulk-sealing.ts";
import type { Greeting, ReturnPath, ToldHealth } from "../../wire/handshake.ts";
import type { Nonce } from "../../wire/message.ts";
import type { Outbox } from "../channel/outbox.ts";
import type { PingState } from "../liveness/ping-state.ts";
import type { WatchedSession } from "../liveness/watched-session.ts";
import type { EngineServices, OfferedServices } from "./engine-services.ts";
import type { IncomingBodies } from "./incoming-bodies.ts";
import type { MethodNumbers } from "./method-numbers.ts";
import type { RendezvousOffers } from "./rendezvous.ts";

/** A session for its parts. */
export interface SessionContext extends WatchedSession {
  readonly remoteState: PingState;
  readonly services: EngineServices;
  readonly port: Port;
  readonly address: number;
  /** The nonce in messages to this side. */
  readonly nonce: Nonce;
  readonly account: PeerAccount;
  /** The heartbeat's time, which advances from tick to tick only. */
  readonly nowMs: number;
  /** The return path that the peer has given. Undefined before that. */
  readonly path: ReturnPath | undefined;
  /**
   * A name that both sides derive and no other session has; "" before the path. It derives from the secret numbers in
   * the session's messages, and does not reveal them.
   */
  readonly name: string;
  /** The peer's greeting. Undefined while the session opens. */
  readonly remote: Greeting | undefined;
  /**
   * The identity that the peer has proven. Undefined while the session opens, and for a peer without a proof. Set once,
   * by what opens the session.
   */
  readonly identity: Identity | undefined;
  /** The keys of a session with sealed messages, for both directions. */
  readonly ciphers: SessionCiphers | undefined;
  /** The services of this side for the peer. */
  readonly served: OfferedServices;
  /** The methods of the peer. */
  readonly methods: MethodNumbers;
  /** The window, as set by the side that opened it. */
  readonly window: WindowLimits;
  /** Takes frames for the peer. */
  readonly outbox: Outbox;
  /** The bodies of incoming frames. */
  readonly bodies: IncomingBodies;
  /** Bodies kept for the peer to pull. */
  readonly offers: RendezvousOffers;
  /** Whether bodies and regions travel sealed. */
  readonly sealing: BulkSealing;
  /** The longest body both sides take. */
  readonly bodyLimit: number;
  /** A message is being taken apart: more frames may follow. */
  readonly receiving: boolean;
  /** The time of the engine's clock, once read for the present message. -1 when it must be read. */
  readMs: number;
  /**
   * A transfer of this side was refused. The connection has broken, and the session ends after the answer of the
   * memory's owner.
   */
  transferRefused: boolean;
  /** The session's part of this class. Throws without such a part. Not for the hot path. */
  part<P extends object>(type: abstract new (...args: never[]) => P): P;
  /** The session has open work from now on, after it had none. */
  watch(): void;
  /** The peer reports which of its services do not serve. */
  onHealth(health: ToldHealth): void;
  /** The peer broke the protocol: counts the fault, reports it, and ends the session. */
  fault(text: string): void;
}
