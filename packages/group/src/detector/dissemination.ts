import type { MemberId, Update } from "./message.ts";
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

/**
 * Updates that other members may not know. Each is sent a bounded number of times, those with the fewest sends first. A
 * member has one update: a newer one replaces it.
 */
export class News {
  /** Updates by the number of times that they were sent. */
  readonly #sent: Map<MemberId, Update>[] = [];
  #size = 0;

  get size(): number {
    return this.#size;
  }

  add(update: Update): void {
    this.remove(update.member);
    this.#at(0).set(update.member, update);
    this.#size += 1;
  }

  remove(member: MemberId): void {
    for (const updates of this.#sent) {
      if (!updates.delete(member)) continue;
      this.#size -= 1;
      return;
    }
  }

  /** Takes up to `count` updates for one message, and drops those that have then been sent `limit` times. */
  take(count: number, limit: number): Update[] {
    if (this.#size === 0) return [];
    const taken: Update[] = [];
    const times: number[] = [];
    for (let sent = 0; sent < this.#sent.length && taken.length < count; sent += 1) {
      for (const update of this.#at(sent).values()) {
        if (taken.length === count) break;
        taken.push(update);
        times.push(sent);
      }
    }
    taken.forEach((update, index) => {
      const sent = times[index] ?? 0;
      this.#at(sent).delete(update.member);
      if (sent + 1 < limit) this.#at(sent + 1).set(update.member, update);
      else this.#size -= 1;
    });
    return taken;
  }

  #at(sent: number): Map<MemberId, Update> {
    let updates = this.#sent[sent];
    if (updates === undefined) {
      updates = new Map();
      this.#sent[sent] = updates;
    }
    return updates;
  }
}
