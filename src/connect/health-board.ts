import { builtin } from "../wire/builtin.ts";
import { packHealth, parseHealth, type ToldHealth } from "../wire/handshake.ts";
import { type AnnouncedSession, announce, announcementMethod } from "./announcement.ts";

/**
 * Tells peers which services serve: the welcome does, and then a control request after each change. All changes of one
 * turn of the event loop are one request to each peer. An engine whose health was never set tells nothing.
 */
export class HealthBoard {
  readonly #told: () => ToldHealth | undefined;
  readonly #sessions: Iterable<AnnouncedSession>;
  #isPosting = false;

  constructor(told: () => ToldHealth | undefined, sessions: Iterable<AnnouncedSession>) {
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
  onOpened(session: AnnouncedSession): void {
    if (this.#told() !== undefined) queueMicrotask(() => this.#tell(session));
  }

  #tell(session: AnnouncedSession): void {
    const told = this.#told();
    if (told !== undefined) announce(session, builtin.health, packHealth(told));
  }
}

/** Serves `health`: a peer tells which of its services do not serve. */
export const healthMethod = announcementMethod("health", parseHealth, (peer, health) =>
  peer.onHealth(health),
);
