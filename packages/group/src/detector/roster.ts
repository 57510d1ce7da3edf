import type { MemberId } from "./message.ts";

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
