import type { OutgoingCall } from "../call/outgoing-call.ts";
import { closedError } from "../errors/closed.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Session } from "../session/session.ts";
import type { SessionHost } from "../session/session-host.ts";
import { Pauses } from "./pauses.ts";
import { pauseMs, type ResolvedReconnectOptions } from "./reconnect.ts";
import { mostWaiting, tooManyWait } from "./wait-for-session.ts";

/** Whose sessions are opened: the peer. */
export interface Reopened {
  readonly url: string;
  readonly host: SessionHost;
  readonly closed: boolean;
  /** The session that is open, though it may be draining. */
  readonly current: Session | undefined;
  /** Takes the session that has been opened. @throws RpcError when it is of no use. */
  adopt(session: Session): void;
}

/** How a peer comes by its next session, and the calls that wait for it meanwhile. */
export class Reopening {
  readonly #peer: Reopened;
  readonly #open: () => Promise<Session>;
  readonly #options: ResolvedReconnectOptions;
  readonly #pauses: Pauses;
  readonly #maxWaiting: number;
  /** Calls that wait for a session, and some that did. */
  readonly #waiting = new Set<OutgoingCall>();
  #forgotMs = Number.NEGATIVE_INFINITY;
  #opening: Promise<Session> | undefined;
  #giveUp: (() => void) | undefined;
  #onSessionEnded: (() => void) | undefined;

  /** `open` tries once. */
  constructor(
    peer: Reopened,
    open: () => Promise<Session>,
    options: ResolvedReconnectOptions,
    window: { readonly maxWaiting: number },
  ) {
    this.#peer = peer;
    this.#open = open;
    this.#options = options;
    this.#pauses = new Pauses(peer.host.clock, true);
    this.#maxWaiting = mostWaiting(window);
  }

  get underWay(): boolean {
    return this.#opening !== undefined;
  }

  /** Whether tries are repeated while calls wait. */
  get patient(): boolean {
    return this.#options.whileLost === "wait";
  }

  /** The next session, which all share that ask for it meanwhile. Throws RpcError `resource_exhausted` when no more calls may wait. */
  session(call: OutgoingCall | undefined): Promise<Session> {
    if (call !== undefined) this.#letWait(call);
    this.#opening ??= this.#reopen();
    return this.#opening;
  }

  onSessionEnded(): void {
    this.#onSessionEnded?.();
  }

  /** Whoever waits hears that the peer has been closed. */
  close(): void {
    this.#giveUp?.();
    this.#pauses.endAll();
  }

  /** What waits for a session is bounded as what waits in one. */
  #letWait(call: OutgoingCall): void {
    if (this.#waiting.size >= this.#maxWaiting) this.#forgetNowAndThen();
    if (this.#waiting.size >= this.#maxWaiting) throw tooManyWait(this.#waiting.size, this.#peer.url);
    this.#waiting.add(call);
  }

  /** Not each time while the bound is reached: there may be none to forget. */
  #forgetNowAndThen(): void {
    const nowMs = this.#peer.host.clock.now();
    if (nowMs < this.#forgotMs + forgetEveryMs) return;
    this.#forgotMs = nowMs;
    this.#forgetSettled();
  }

  /** Calls that have been given up. */
  #forgetSettled(): void {
    for (const call of this.#waiting) if (call.settled) this.#waiting.delete(call);
  }

  /** Settles at the latest when the peer is closed: calls that wait for the session must not wait for whoever does not answer. */
  #reopen(): Promise<Session> {
    return new Promise<Session>((resolve, reject) => {
      this.#giveUp = () => reject(closedError(this.#peer.url));
      // Cleared before anybody hears: who tries again at once must not be given the old attempt.
      const clear = () => {
        this.#opening = undefined;
        this.#giveUp = undefined;
        this.#waiting.clear();
      };
      this.#openPatiently().then(
        (session) => {
          clear();
          try {
            this.#peer.adopt(session);
            resolve(session);
          } catch (error) {
            session.end(error as RpcError);
            reject(error);
          }
        },
        (error) => {
          clear();
          reject(error);
        },
      );
    });
  }

  /** Tries until there is a session; once, when no call waits for more. */
  async #openPatiently(): Promise<Session> {
    for (let attempt = 0; ; attempt++) {
      await this.#drained();
      try {
        return await this.#open();
      } catch (error) {
        if (!mayPass(error) || !this.#awaited()) throw error;
        await this.#pauses.pause(pauseMs(attempt, this.#options));
        if (!this.#awaited()) throw error;
      }
    }
  }

  /** A peer that drains is not asked for another session while it has ours. */
  #drained(): Promise<void> | undefined {
    if (this.#peer.current === undefined) return undefined;
    return new Promise((resolve) => {
      this.#onSessionEnded = resolve;
    });
  }

  /** Whether any call still waits, and may. */
  #awaited(): boolean {
    if (this.#peer.closed || !this.patient || !this.#peer.host.intake.calls) return false;
    this.#forgetSettled();
    return this.#waiting.size > 0;
  }
}

const forgetEveryMs = 100;

/** Whether another try may fare better: nobody there, or no room. A peer that cannot be understood will not be understood later. */
function mayPass(error: unknown): boolean {
  return error instanceof RpcError && (error.retryable || error.code === "resource_exhausted");
}
