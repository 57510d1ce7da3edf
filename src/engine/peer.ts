import type { ClientOptions } from "../client/call-options.ts";
import { type Client, createClient } from "../client/client.ts";
import { RetriedCalls } from "../client/retried-calls.ts";
import type { SessionSource } from "../client/session-source.ts";
import type { AnyService } from "../contract/service.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Session } from "../session/session.ts";
import type { SessionHost } from "../session/session-host.ts";

/**
 *   connecting  a session is being opened
 *   connected   calls flow
 *   lost        the last session ended without our doing; the next call opens another
 *   closed      by us, for good
 */
export type PeerState = "connecting" | "connected" | "lost" | "closed";

/** What a peer holds at this moment. */
export interface PeerStats {
  readonly state: PeerState;
  /** Calls to it that have no terminal frame yet. */
  readonly callsOut: number;
  /** Calls from it that are being served. */
  readonly callsIn: number;
  /** Bytes of encoded frames that wait for room to be sent. */
  readonly queuedBytes: number;
}

/** How a peer opens its next session: the engine's business. */
export type SessionOpener = (peer: Peer) => Promise<Session>;

/**
 * Another engine, as this one reaches it. Made by `engine.connect`. When its session is lost the open calls fail with `unavailable`, and the next
 * call opens a new session: a restarted process at the same address is a new incarnation and never sees what was meant for the old one.
 */
export class Peer implements SessionSource, AsyncDisposable {
  readonly url: string;
  readonly host: SessionHost;
  /** @internal */
  readonly retried = new RetriedCalls();
  readonly #open: SessionOpener;
  readonly #onClosed: (peer: Peer) => void;
  #session: Session | undefined;
  #opening: Promise<Session> | undefined;
  #giveUp: (() => void) | undefined;
  #closed = false;

  /** @internal */
  constructor(url: string, host: SessionHost, open: SessionOpener, onClosed: (peer: Peer) => void) {
    this.url = url;
    this.host = host;
    this.#open = open;
    this.#onClosed = onClosed;
  }

  get name(): string {
    return this.url;
  }

  get state(): PeerState {
    if (this.#closed) return "closed";
    if (this.#session?.state === "open") return "connected";
    return this.#opening === undefined ? "lost" : "connecting";
  }

  /** A random number that the peer's engine drew when it opened; another value is another life. Undefined while not connected. */
  get incarnation(): bigint | undefined {
    return this.#session?.state === "open" ? this.#session.remote?.incarnation : undefined;
  }

  /** The peer's software and provider, for people. "" while not connected. */
  get agent(): string {
    return this.#session?.remote?.agent ?? "";
  }

  /** Names of the services it serves. */
  get services(): string[] {
    return this.#session?.methods.names() ?? [];
  }

  /**
   * A typed client of one of the peer's services. Costs nothing, holds nothing, and survives the peer's restarts. Whether the peer serves it
   * shows at the first call (`unimplemented`).
   */
  client<S extends AnyService>(service: S, options: ClientOptions = {}): Client<S> {
    return createClient(this, service, options);
  }

  /** @internal */
  session(): Session | Promise<Session> {
    const session = this.#session;
    if (session !== undefined && session.state === "open") return session;
    if (this.#closed) throw this.#closedError();
    this.#opening ??= this.#reopen();
    return this.#opening;
  }

  /** Settles at the latest when the peer is closed: calls that wait for the session must not wait for whoever does not answer. */
  #reopen(): Promise<Session> {
    return new Promise<Session>((resolve, reject) => {
      this.#giveUp = () => reject(this.#closedError());
      // Cleared before anybody hears: who tries again at once must not be given the old attempt.
      const clear = () => {
        this.#opening = undefined;
        this.#giveUp = undefined;
      };
      this.#open(this).then(
        (session) => {
          clear();
          this.#session = session;
          if (this.#closed) this.#end();
          resolve(session);
        },
        (error) => {
          clear();
          reject(error);
        },
      );
    });
  }

  stats(): PeerStats {
    const session = this.#session;
    return {
      state: this.state,
      callsOut: session?.callsOut ?? 0,
      callsIn: session?.callsIn ?? 0,
      queuedBytes: session?.queuedBytes ?? 0,
    };
  }

  /** Ends the session, telling the peer; open calls fail with `unavailable`. Safe to call twice. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.retried.close(this.#closedError());
    this.#end();
    this.#giveUp?.();
    this.#onClosed(this);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  #end(): void {
    this.#session?.end(this.#closedError());
  }

  #closedError(): RpcError {
    return new RpcError({ code: "unavailable", message: `${this.url} has been closed`, origin: "local" });
  }
}
