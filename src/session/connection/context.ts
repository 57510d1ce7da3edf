import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { WindowLimits } from "../../base/flow/in-flight-window.ts";
import type { PeerAccount } from "../../base/flow/peer-account.ts";
import type { Port } from "../../fabric/port.ts";
import type { Identity } from "../../security/identity.ts";
import type { SessionCiphers } from "../../security/sealing/session-ciphers.ts";
import type { BulkSealing } from "../../transfer/sealed/bulk-sealing.ts";
import type { Greeting, ReturnPath, ToldHealth } from "../../wire/handshake.ts";
import type { Nonce } from "../../wire/message.ts";
import type { Confirmation } from "../channel/confirmation.ts";
import type { Outbox } from "../channel/outbox.ts";
import type { EngineServices, Served } from "./engine-services.ts";
import type { IncomingBodies } from "./incoming-bodies.ts";
import type { RemoteState } from "./keepalive.ts";
import type { MethodNumbers } from "./method-numbers.ts";
import type { RendezvousOffers } from "./rendezvous.ts";

/**
 *   opening   from the first byte on, until both sides have greeted each other (docs/design/sessions.md has its steps)
 *   open      frames flow, both ways
 *   ended     nothing is taken or sent any more
 */
export type SessionState = "opening" | "open" | "ended";

/** What names a session: `index` and `nonce` are what messages to it carry. */
export interface SessionIdentity {
  readonly address: number;
  readonly index: number;
  readonly nonce: Nonce;
  /** The peer's URL, or what is known of it. */
  readonly peerName: string;
  /** What the peer makes this engine hold. Default: an account of the session's own. */
  readonly account?: PeerAccount;
  /** What this side serves to the peer. Default: what it serves to those who connect. */
  readonly served?: Served | undefined;
  /** The peer has connected and must still prove who it is: it counts as no session. Default false. */
  readonly isStranger?: boolean;
}

/** How a session ends. */
export interface EndOptions {
  /** The peer is not told. Default false. */
  readonly quiet?: boolean | undefined;
  /**
   * Nobody at the other side can touch our memory any more; otherwise what was granted goes into quarantine. Default
   * false.
   */
  readonly certain?: boolean | undefined;
}

/** Who wants to know how a session fares: the peer that opened it. */
export interface SessionObserver {
  /** The peer has not answered a ping for longer than it usually takes; `phi` says how strange that is. */
  onSuspect(phi: number, silentMs: number): void;
  /** A suspected peer was heard again. */
  onTrusted(): void;
  /** It takes no new calls from now on. */
  onDraining(): void;
  /** It says what it serves besides since the session opened. */
  onServices(): void;
  /** It says which of its services do not serve. */
  onHealth(health: ToldHealth): void;
  onEnded(reason: RpcError): void;
}

/** A session as the heartbeat sees it. */
export interface WatchedSession {
  /** The peer's URL, or what is known of it. */
  readonly peerName: string;
  readonly state: SessionState;
  readonly remoteState: RemoteState;
  readonly observer: SessionObserver | undefined;
  /** When the peer was last heard, on the heartbeat's clock. */
  heardMs: number;
  /** Grows when bytes of the peer come that are no message yet (`Port.heard`). */
  readonly heardBytes: number;
  /** What that was when the heartbeat looked last. Only the heartbeat sets it. */
  seenBytes: number;
  /** The heartbeat looks after the session. Only the heartbeat sets it. */
  isWatched: boolean;
  /** Whether the peer has received what was sent. */
  readonly confirmation: Confirmation;
  /** Something is open: the peer's death would matter. */
  readonly hasOpenWork: boolean;
  /**
   * Frames wait to leave, or messages are on their way whose end is not known yet. A provider may try for ever to reach
   * a peer that is gone.
   */
  readonly isSending: boolean;
  /**
   * How old the oldest long body is that the peer offers or is offered, in milliseconds, if it moves too little of them;
   * else 0.
   */
  readonly stalledMs: number;
  /**
   * Asks whether the peer is there. With a word that is not 0, parts are told by `onEcho` when the peer has taken all
   * that was sent before.
   */
  ping(word?: number): void;
  end(reason: RpcError, how?: EndOptions): void;
}

/** Watches that the peers of sessions live: the heartbeat. */
export interface SessionWatch {
  /** When what arrives now was heard, on the heartbeat's clock. */
  readonly nowMs: number;
  /** The session has open work from now on. */
  watch(session: WatchedSession): void;
  /** Asks an idle peer whether it lives, and ends the session if it does not say so within the heartbeat's bound. */
  probe(session: WatchedSession): void;
  /** The session was welcomed: ends it if its peer never says a word. */
  expect(session: WatchedSession): void;
  /** Whether its peer was asked by `probe`, and has not been heard since. */
  isAsked(session: WatchedSession): boolean;
  /** The answer to a ping has come. */
  ponged(session: WatchedSession): void;
}

/** A session as its parts see it. */
export interface SessionContext extends WatchedSession {
  readonly services: EngineServices;
  readonly port: Port;
  readonly address: number;
  /** What messages to this side carry. */
  readonly nonce: Nonce;
  readonly account: PeerAccount;
  /** The heartbeat's time, which advances from tick to tick only. */
  readonly nowMs: number;
  /** Where the peer is, as it said; undefined until it has. */
  readonly path: ReturnPath | undefined;
  /** What the peer said of itself; undefined while opening. */
  readonly remote: Greeting | undefined;
  /**
   * Who the peer has proven to be; undefined while the session opens, and for a peer that proves nothing. Set once, by
   * what opens the session.
   */
  readonly identity: Identity | undefined;
  /** The keys of the session where messages are sealed, both ways. */
  readonly ciphers: SessionCiphers | undefined;
  /** What this side serves to the peer. */
  readonly served: Served;
  /** What the peer serves. */
  readonly methods: MethodNumbers;
  /** The window, as the side that opened it has set it. */
  readonly window: WindowLimits;
  /** Takes frames for the peer. */
  readonly outbox: Outbox;
  /** The bodies of frames that arrive. */
  readonly bodies: IncomingBodies;
  /** Bodies kept for the peer to pull. */
  readonly offers: RendezvousOffers;
  /** Whether bodies and regions travel sealed. */
  readonly sealing: BulkSealing;
  /** The longest body both sides take. */
  readonly bodyLimit: number;
  /** A message is being taken apart: more frames may follow. */
  readonly receiving: boolean;
  /** When the engine's clock was last read while a message was taken apart; -1 where it must be read. */
  readMs: number;
  /**
   * A transfer of ours was refused: the connection has broken, and the session ends when the owner of the memory has
   * said why.
   */
  transferRefused: boolean;
  /** Its part of this class. Throws when it has none. Not for the hot path. */
  part<P extends object>(type: abstract new (...args: never[]) => P): P;
  /** It has open work from now on, where it had none. */
  watch(): void;
  /** The peer says which of its services do not serve. */
  onHealth(health: ToldHealth): void;
  /** The peer broke the protocol: counts it, says so, ends. */
  fault(text: string): void;
}
