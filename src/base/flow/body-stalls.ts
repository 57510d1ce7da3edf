/*
 * Decides when a peer that does not move its long bodies loses its session. Only bytes count: a peer that answers pings
 * but moves no bytes is overdue.
 */

/** A peer that moves this many bytes gets another `maxBodyStallMs`. Fewer bytes give it their share of that. */
export const bytesByStall = 1024 * 1024;

/** A body is kept or pulled for at most this many `maxBodyStallMs`, even while its peer moves other bodies. */
export const maxStalls = 64;

/** Bodies that began between two checks are as old as the second check. */
interface Look {
  ms: number | undefined;
}

/** A body that is being moved. */
export interface BodyUnderWay {
  began: Look;
}

/**
 * The bodies that one session is moving one way. The next check dates bodies and bytes, so the time between two checks
 * counts for the peer, however long it is.
 */
export class BodiesUnderWay {
  /** Oldest first. */
  readonly #bodies = new Set<BodyUnderWay>();
  #nextLook: Look = { ms: undefined };
  /** Bytes moved since the last check. */
  #moved = 0;
  /** The time at which the peer is overdue. */
  #dueMs = 0;

  get size(): number {
    return this.#bodies.size;
  }

  begin(): BodyUnderWay {
    const body = { began: this.#nextLook };
    this.#bodies.add(body);
    return body;
  }

  end(body: BodyUnderWay): void {
    this.#bodies.delete(body);
  }

  /** Gives the body its whole time again. */
  renew(body: BodyUnderWay): void {
    if (!this.#bodies.delete(body)) return;
    body.began = this.#nextLook;
    this.#bodies.add(body);
  }

  onMoved(bytes: number): void {
    this.#moved += bytes;
  }

  /** Checks at `nowMs`. Returns the age of the oldest body if its peer moves too little; else 0. */
  overdueMs(nowMs: number, stallMs: number): number {
    this.#nextLook.ms = nowMs;
    this.#nextLook = { ms: undefined };
    const earnedMs = (this.#moved / bytesByStall) * stallMs;
    this.#moved = 0;
    const [oldest] = this.#bodies;
    if (oldest === undefined) return 0;
    const beganMs = oldest.began.ms ?? nowMs;
    // A body has its whole time, whatever came before. Earned time is not saved.
    const dueMs = Math.max(this.#dueMs, beganMs + stallMs) + earnedMs;
    this.#dueMs = Math.min(dueMs, nowMs + stallMs);
    const isOverdue = nowMs >= this.#dueMs || nowMs - beganMs >= maxStalls * stallMs;
    return isOverdue ? nowMs - beganMs : 0;
  }
}
