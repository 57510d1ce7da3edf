import type { MemberId, Status, Update } from "./message.ts";
import type { Roster } from "./roster.ts";

export interface Opinion {
  readonly status: Status;
  readonly incarnation: number;
}

/** At one incarnation the later of these holds. A member changes between alive and stalled by a new incarnation. */
const strength: Readonly<Record<Status, number>> = { alive: 0, stalled: 0, suspect: 1, dead: 2, left: 3 };

/**
 * Whether an update is newer than the belief: a later incarnation, or the same one and a stronger status. The order is
 * total but for alive and stalled. So all members reach one opinion, in whatever order updates arrive.
 */
export function isNews(update: Opinion, believed: Opinion): boolean {
  if (update.incarnation !== believed.incarnation) return update.incarnation > believed.incarnation;
  return strength[update.status] > strength[believed.status];
}

/** Whether a member takes part: it is probed and may be asked for indirect probes. */
export function isLiving(status: Status): boolean {
  return status !== "dead" && status !== "left";
}

/** What one detector believes of each member. Only what differs from the roster takes memory. */
export class Opinions {
  /** Members that died, and those that left. */
  readonly dead = new Set<MemberId>();
  readonly left = new Set<MemberId>();
  readonly #differing = new Map<MemberId, Opinion>();
  #roster: Roster;

  constructor(roster: Roster) {
    this.#roster = roster;
  }

  get size(): number {
    return this.#roster.size;
  }

  /** How many members take part, this one included. */
  get living(): number {
    return this.#roster.size - this.dead.size - this.left.size;
  }

  /** Undefined for one that is not in the roster. */
  of(member: MemberId): Opinion | undefined {
    const differing = this.#differing.get(member);
    if (differing !== undefined) return differing;
    const listed = this.#roster.get(member);
    return listed && { status: "alive", incarnation: listed.incarnation ?? 0 };
  }

  /** The opinion to send to the member it concerns: undefined if the roster says the same. */
  differing(member: MemberId): Opinion | undefined {
    return this.#differing.get(member);
  }

  isLiving(member: MemberId): boolean {
    return !this.dead.has(member) && !this.left.has(member);
  }

  set({ member, status, incarnation }: Update): void {
    this.dead.delete(member);
    this.left.delete(member);
    if (status === "dead") this.dead.add(member);
    if (status === "left") this.left.add(member);
    const isListed = status === "alive" && incarnation === (this.#roster.get(member)?.incarnation ?? 0);
    if (isListed) this.#differing.delete(member);
    else this.#differing.set(member, { status, incarnation });
  }

  /** Forgets members that are no longer listed, and opinions that are older than the new roster's incarnation. */
  adopt(roster: Roster): void {
    this.#roster = roster;
    for (const [member, { incarnation }] of this.#differing) {
      const listed = roster.get(member);
      if (listed !== undefined && incarnation >= (listed.incarnation ?? 0)) continue;
      this.#differing.delete(member);
      this.dead.delete(member);
      this.left.delete(member);
    }
  }
}
