import { RpcError } from "../base/errors/rpc-error.ts";
import type { Complete } from "../base/options/options.ts";
import { Backoff, backoffMs } from "../base/time/backoff.ts";
import type { Clock } from "../base/time/clock.ts";
import type { OutgoingCall } from "../call/outgoing-call.ts";
import type { CallSession } from "../client/session-source.ts";
import type { Session } from "../session/connection/session.ts";
import type { ReconnectOptions } from "./connect-options.ts";

/** What a reconnector needs of its connection. */
export interface ReconnectContext {
  readonly url: string;
  readonly engine: { readonly clock: Clock; readonly gate: { readonly calls: boolean } };
  readonly closed: boolean;
  /** The session that is open, though it may be draining. */
  readonly current: object | undefined;
  /** Takes the session that has been opened, and gives what calls use of it. @throws RpcError when it is of no use. */
  adopt(session: Session): CallSession;
}

/**
 * Opens the next session of a connection, with backoff between tries, and keeps the calls that wait for it meanwhile.
 */
export class Reconnector {
  readonly #peer: ReconnectContext;
  readonly #open: () => Promise<Session>;
  readonly #options: Complete<ReconnectOptions>;
  readonly #backoff: Backoff;
  readonly #maxWaiting: number;
  /** Calls that wait for a session, and some that did. */
  readonly #waiting = new Set<OutgoingCall>();
  #forgotMs = Number.NEGATIVE_INFINITY;
  #opening: Promise<CallSession> | undefined;
  #giveUp: ((reason: RpcError) => void) | undefined;
  #onSessionEnded: (() => void) | undefined;

  /** `open` tries once. */
  constructor(
    peer: ReconnectContext,
    open: () => Promise<Session>,
    options: Complete<ReconnectOptions>,
    window: { readonly maxWaiting: number },
  ) {
    this.#peer = peer;
    this.#open = open;
    this.#options = options;
    this.#backoff = new Backoff(peer.engine.clock, true);
    this.#maxWaiting = mostWaiting(window);
  }

  get underWay(): boolean {
    return this.#opening !== undefined;
  }

  /** Whether tries are repeated while calls wait. */
  get waitForReady(): boolean {
    return this.#options.whileLost === "wait";
  }

  /**
   * The next session; all who ask meanwhile share it.
   *
   * @throws RpcError `resource_exhausted` when no more calls may wait.
   */
  session(call: OutgoingCall | undefined): Promise<CallSession> {
    if (call !== undefined) this.#letWait(call);
    this.#opening ??= this.#reopen();
    return this.#opening;
  }

  onSessionEnded(): void {
    this.#onSessionEnded?.();
  }

  /** The calls that wait fail: the connection has been closed. */
  close(reason: RpcError): void {
    this.#giveUp?.(reason);
    this.#backoff.endAll();
  }

  /** As many calls may wait for a session as in one. */
  #letWait(call: OutgoingCall): void {
    if (this.#waiting.size >= this.#maxWaiting) this.#forgetNowAndThen();
    if (this.#waiting.size >= this.#maxWaiting) throw tooManyWait(this.#waiting.size, this.#peer.url);
    this.#waiting.add(call);
  }

  /** Not each time while the bound is reached: there may be none to forget. */
  #forgetNowAndThen(): void {
    const nowMs = this.#peer.engine.clock.now();
    if (nowMs < this.#forgotMs + forgetEveryMs) return;
    this.#forgotMs = nowMs;
    this.#forgetSettled();
  }

  /** Calls that have been given up. */
  #forgetSettled(): void {
    for (const call of this.#waiting) if (call.settled) this.#waiting.delete(call);
  }

  /** Settles at the latest when the connection is closed: calls must not wait for a peer that does not answer. */
  #reopen(): Promise<CallSession> {
    return new Promise<CallSession>((resolve, reject) => {
      this.#giveUp = reject;
      // Cleared first: a call that tries again at once must not be given the old attempt.
      const clear = () => {
        this.#opening = undefined;
        this.#giveUp = undefined;
        this.#waiting.clear();
      };
      this.#openWithRetries().then(
        (session) => {
          clear();
          try {
            resolve(this.#peer.adopt(session));
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
  async #openWithRetries(): Promise<Session> {
    for (let attempt = 0; ; attempt++) {
      await this.#drained();
      try {
        return await this.#open();
      } catch (error) {
        if (!mayPass(error) || !this.#awaited()) throw error;
        await this.#backoff.pause(backoffMs(attempt, this.#options));
        if (!this.#awaited()) throw error;
      }
    }
  }

  /** A peer that drains gets no other hello while it has a session with this engine. */
  #drained(): Promise<void> | undefined {
    if (this.#peer.current === undefined) return undefined;
    return new Promise((resolve) => {
      this.#onSessionEnded = resolve;
    });
  }

  /** Whether any call still waits, and may. */
  #awaited(): boolean {
    if (this.#peer.closed || !this.waitForReady || !this.#peer.engine.gate.calls) return false;
    this.#forgetSettled();
    return this.#waiting.size > 0;
  }
}

const forgetEveryMs = 100;

/** Whether another try may succeed: nobody was there, or there was no room. A peer of another protocol stays one. */
export function mayPass(error: unknown): boolean {
  return error instanceof RpcError && (error.retryable || error.code === "resource_exhausted");
}

/** Somebody must be able to ask for a session, also where nobody is to wait for a place in one. */
const leastWaiting = 1024;

/** How many calls may wait for a session to be opened: as many as may wait in one. */
export function mostWaiting({ maxWaiting }: { readonly maxWaiting: number }): number {
  return Math.max(maxWaiting, leastWaiting);
}

export function tooManyWait(waiting: number, name: string): RpcError {
  return new RpcError({
    code: "resource_exhausted",
    message: `${waiting} calls wait for a session with ${name}, the limit is reached`,
  });
}
