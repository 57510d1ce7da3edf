import type { MemberId, OwnStatus, Status, Update } from "./message.ts";

/** A member as the authority over the group names it. */
export interface Member {
  readonly id: MemberId;
  /** Where its detector listens. The second one, if any, is tried where the first does not answer. */
  readonly addresses: readonly [string, ...string[]];
  /** Where the authority knows one. Default: 0. */
  readonly incarnation?: number;
}

/** The members of a group, as the authority names them. Immutable; each change is another roster. */
export class Roster {
  readonly members: readonly Member[];
  readonly #byId: ReadonlyMap<MemberId, Member>;

  /** @throws RangeError when two members have one id. */
  constructor(members: readonly Member[]) {
    this.members = members;
    this.#byId = new Map(members.map((member) => [member.id, member]));
    if (this.#byId.size === members.length) return;
    const twice = members.find((member) => this.#byId.get(member.id) !== member);
    throw new RangeError(`the group has two members with the id ${twice?.id}`);
  }

  get size(): number {
    return this.members.length;
  }

  get(id: MemberId): Member | undefined {
    return this.#byId.get(id);
  }

  /** @throws RangeError when there is no such member */
  require(id: MemberId): Member {
    const member = this.#byId.get(id);
    if (member === undefined)
      throw new RangeError(`the group has no member ${id}, which this detector is for`);
    return member;
  }
}

/** Up to `count` different members at random of those that are accepted; fewer where chance finds fewer. */
export function pickMembers(
  { members }: Roster,
  count: number,
  random: () => number,
  accepts: (id: MemberId) => boolean,
): MemberId[] {
  const picked: MemberId[] = [];
  // Most are accepted nearly always. A few tries more serve a group of which most have died.
  for (let tries = 8 + 4 * count; tries > 0 && picked.length < count; tries -= 1) {
    const id = members[Math.floor(random() * members.length)]?.id;
    if (id !== undefined && !picked.includes(id) && accepts(id)) picked.push(id);
  }
  return picked;
}

interface Opinion {
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

/** What a detector says of its own member. */
export class OwnState {
  status: OwnStatus = "alive";
  incarnation: number;
  /** The last incarnation that others have declared dead. Those before the first of this process are not its own. */
  #excludedIncarnation: number;

  constructor(incarnation: number) {
    this.incarnation = incarnation;
    this.#excludedIncarnation = incarnation - 1;
  }

  /**
   * Takes another member's belief about this one. `isExcluded`: this member was declared dead, for the first time at
   * this incarnation. A death may be older than a refutation of the suspicion before it, and a member may have acted on
   * it all the same. `isWrong`: only a later incarnation corrects it.
   */
  hear({ status, incarnation }: Update): { readonly isExcluded: boolean; readonly isWrong: boolean } {
    if (this.status === "left") return { isExcluded: false, isWrong: false };
    const isExcluded = status === "dead" && incarnation > this.#excludedIncarnation;
    if (isExcluded) this.#excludedIncarnation = incarnation;
    const isSame = incarnation === this.incarnation && (status === this.status || status === "alive");
    return { isExcluded, isWrong: incarnation >= this.incarnation && !isSame };
  }
}
