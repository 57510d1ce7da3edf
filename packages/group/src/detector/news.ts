import type { MemberId, Update } from "./message.ts";

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
