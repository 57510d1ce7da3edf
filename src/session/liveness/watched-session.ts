import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { PingState } from "./ping-state.ts";

/**
 *   opening   from the first byte on, until both sides have greeted each other (docs/design/sessions.md has its steps)
 *   open      frames flow, both ways
 *   ended     no more frames are taken or sent
 */
export type SessionState = "opening" | "open" | "ended";

/** The way in which a session ends. */
export interface EndOptions {
  /** No goodbye is sent to the peer. Default false. */
  readonly quiet?: boolean | undefined;
  /**
   * The peer can certainly no longer touch memory of this side. Otherwise granted memory goes into quarantine. Default
   * false.
   */
  readonly certain?: boolean | undefined;
}

/** Is notified how a peer answers. */
export interface SuspicionListener {
  /** The peer's answer takes longer than usual. `phi` measures how unusual that is. */
  onSuspect(phi: number, silentMs: number): void;
  /** A message of a suspected peer has come. */
  onTrusted(): void;
}

/** A session for the heartbeat. */
export interface WatchedSession {
  /** The peer's URL, or its known part. */
  readonly peerName: string;
  readonly state: SessionState;
  /** The peer's state from pings and pongs, and whether it has received the messages of this side. */
  readonly remoteState: PingState;
  readonly observer: SuspicionListener | undefined;
  /** The time of the last message, on the heartbeat's clock. */
  heardMs: number;
  /** Grows when bytes of the peer come that are not a whole message yet (`Port.heard`). */
  readonly heardBytes: number;
  /** The value of `heardBytes` at the last look. Only the heartbeat sets it. */
  seenBytes: number;
  /** A message of the peer has come. The session sets it, the pings of idle peers clear it. */
  wasHeard: boolean;
  /** The heartbeat watches the session. Only the heartbeat sets it. */
  isWatched: boolean;
  /** Something is open, so the peer's death matters. */
  readonly hasOpenWork: boolean;
  /**
   * Frames wait to leave, or the outcome of messages on their way is not known yet. A provider may try forever to reach
   * a peer that is gone.
   */
  readonly isSending: boolean;
  /**
   * The age of the oldest long body that either side offers, in milliseconds, if the peer moves too little. Otherwise
   * 0.
   */
  readonly stalledMs: number;
  /**
   * Asks whether the peer is there. With a word other than 0, parts are notified by `onEcho` when the peer has taken
   * all earlier frames.
   */
  ping(word?: number): void;
  end(reason: RpcError, how?: EndOptions): void;
}

/** Watches whether the peers of sessions are alive: the heartbeat. */
export interface SessionWatch {
  /** The heartbeat's time for messages that arrive now. */
  readonly nowMs: number;
  /** The session has open work from now on. */
  watch(session: WatchedSession): void;
  /** Asks an idle peer for a sign of life. Without an answer within the heartbeat's bound, ends the session. */
  probe(session: WatchedSession): void;
  /** The session was welcomed: ends it if its peer never sends a message. */
  expect(session: WatchedSession): void;
  /** Whether the peer was asked by `probe`, and no message has come since. */
  isAsked(session: WatchedSession): boolean;
  /** The answer to a ping has come. */
  ponged(session: WatchedSession): void;
}
