import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { PeerState } from "./peer-state.ts";

/**
 *   opening   from the first byte on, until both sides have greeted each other (docs/design/sessions.md has its steps)
 *   open      frames flow, both ways
 *   ended     nothing is taken or sent any more
 */
export type SessionState = "opening" | "open" | "ended";

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

/** Hears how a peer answers. */
export interface SuspicionListener {
  /** The peer has not answered a ping for longer than it usually takes; `phi` says how strange that is. */
  onSuspect(phi: number, silentMs: number): void;
  /** A suspected peer was heard again. */
  onTrusted(): void;
}

/** A session as the heartbeat sees it. */
export interface WatchedSession {
  /** The peer's URL, or what is known of it. */
  readonly peerName: string;
  readonly state: SessionState;
  /** What the peer says of itself by pings and pongs, and whether it has received what was sent. */
  readonly remoteState: PeerState;
  readonly observer: SuspicionListener | undefined;
  /** When the peer was last heard, on the heartbeat's clock. */
  heardMs: number;
  /** Grows when bytes of the peer come that are no message yet (`Port.heard`). */
  readonly heardBytes: number;
  /** What that was when the heartbeat looked last. Only the heartbeat sets it. */
  seenBytes: number;
  /** The heartbeat looks after the session. Only the heartbeat sets it. */
  isWatched: boolean;
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
