import { builtinMethod } from "../transfer/control/control-method.ts";
import { builtin } from "../wire/builtin.ts";
import { packHealth, parseHealth, type ToldHealth } from "../wire/handshake.ts";

/** What is used of a session to tell the peer which services serve. */
interface ToldSession {
  readonly state: string;
  request(method: number, input: unknown): Promise<unknown>;
}

/**
 * Tells peers which services serve: the welcome does, and then a control request after each change. All changes of one
 * turn of the event loop are one request to each peer. An engine whose health was never set tells nothing.
 */
export class HealthBoard {
  readonly #told: () => ToldHealth | undefined;
  readonly #sessions: Iterable<ToldSession>;
  #isPosting = false;

  constructor(told: () => ToldHealth | undefined, sessions: Iterable<ToldSession>) {
    this.#told = told;
    this.#sessions = sessions;
  }

  /** The health has changed. */
  post(): void {
    if (this.#isPosting) return;
    this.#isPosting = true;
    // Not at once: a session that has just opened says its welcome first.
    queueMicrotask(() => {
      this.#isPosting = false;
      for (const session of this.#sessions) this.#tell(session);
    });
  }

  /** A session has opened, and its welcome may have been made before the last change. */
  onOpened(session: ToldSession): void {
    if (this.#told() !== undefined) queueMicrotask(() => this.#tell(session));
  }

  #tell(session: ToldSession): void {
    const told = this.#told();
    if (told === undefined || session.state !== "open") return;
    // A peer of an older version answers `unimplemented`; a lost one is told in its next welcome.
    session.request(builtin.health, packHealth(told)).catch(() => {});
  }
}

/** Serves `health`: a peer tells which of its services do not serve. */
export const healthMethod = builtinMethod<ToldHealth>(
  "health",
  (parts) => {
    const health = parseHealth(parts);
    return typeof health === "string" ? undefined : health;
  },
  (health, call, peer) => {
    peer.onHealth(health);
    call.settle({ value: undefined });
  },
);
