import type { MemberId, Update } from "./message.ts";
import { News } from "./news.ts";
import type { Opinions } from "./opinions.ts";
import type { ResolvedOptions } from "./options.ts";

const never = Number.POSITIVE_INFINITY;

/** Which updates go along with which message, and when messages are sent for the sake of news alone. */
export class Dissemination {
  /** When the next round of gossip is due; Infinity while there are no news. */
  dueMs = never;
  readonly #self: MemberId;
  readonly #options: ResolvedOptions;
  readonly #opinions: Opinions;
  readonly #news = new News();

  constructor(self: MemberId, options: ResolvedOptions, opinions: Opinions) {
    this.#self = self;
    this.#options = options;
    this.#opinions = opinions;
  }

  get hasNews(): boolean {
    return this.#news.size > 0;
  }

  tell(update: Update, nowMs: number): void {
    this.#news.add(update);
    if (this.dueMs === never && this.#options.gossipFanOut > 0) this.planRound(nowMs);
  }

  forget(member: MemberId): void {
    this.#news.remove(member);
  }

  planRound(nowMs: number): void {
    const { periodMs, gossipRoundsPerPeriod } = this.#options;
    this.dueMs = this.hasNews ? nowMs + periodMs / gossipRoundsPerPeriod : never;
  }

  /** @param about a member whose state the receiver gets in any case */
  updatesFor(receiver: MemberId, about?: MemberId): Update[] {
    const { updatesPerMessage, retransmitFactor, buddy } = this.#options;
    const limit = Math.ceil(retransmitFactor * Math.log(this.#opinions.size + 1));
    const updates = this.#news.take(updatesPerMessage, limit);
    if (buddy) this.#add(updates, receiver);
    if (about !== undefined) this.#add(updates, about);
    return updates;
  }

  /** What the roster says of a member needs no words. */
  #add(updates: Update[], member: MemberId): void {
    const opinion = this.#opinions.differing(member);
    if (opinion === undefined || updates.some((update) => update.member === member)) return;
    updates.push({ member, ...opinion, ...(opinion.status === "suspect" && { accuser: this.#self }) });
  }
}
