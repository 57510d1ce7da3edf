import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { ToldHealth } from "../../wire/handshake.ts";
import type { Outbox } from "../channel/outbox.ts";

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

/** The observer of a session's events: the peer that opened it. */
export interface PeerObserver {
  /** The peer's answer takes longer than usual. `phi` measures how unusual that is. */
  onSuspect(phi: number, silentMs: number): void;
  /** A message of a suspected peer has come. */
  onTrusted(): void;
  /** It takes no new calls from now on. */
  onDraining(): void;
  /** It reports services that were added since the session opened. */
  onServices(): void;
  /** It reports which of its services do not serve. */
  onHealth(health: ToldHealth): void;
  onEnded(reason: RpcError): void;
}

/** A session for the heartbeat and its pings. */
export interface WatchedSession {
  /** The peer's URL, or its known part. */
  readonly peerName: string;
  /**
   *   opening   from the first byte on, until both sides have greeted each other (docs/design/sessions.md has its steps)
   *   open      frames flow, both ways
   *   ended     no more frames are taken or sent
   */
  readonly state: "opening" | "open" | "ended";
  /** The peer's state from pings and pongs, and whether it has received the messages of this side (`PingState`). */
  readonly remoteState: {
    readonly busy: boolean;
    readonly drains: boolean;
    isUnconfirmed(): boolean;
  };
  readonly port: { readonly slabView: DataView };
  readonly outbox: Pick<Outbox, "framesLeft" | "bare" | "latest">;
  readonly services: {
    readonly gate: { readonly requests: boolean };
    readonly progress: { wake(): void };
  };
  readonly observer: PeerObserver | undefined;
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
  /** The peer takes no new calls from now on. */
  onDraining(): void;
  /** The peer has answered a ping with this word. 0 for pings about the session itself. */
  onPong(word: number): void;
  end(reason: RpcError, how?: EndOptions): void;
}
