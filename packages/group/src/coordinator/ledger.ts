import type { Candidate } from "../authority/authority.ts";
import { isSameMember, type Member, makeView, memberOf, type View } from "../view/view.ts";
import type { Published } from "./membership-service.ts";

/**
 * A new coordinator continues with the next multiple. A coordinator that it believed dead may live and publish views as
 * well, and those must be older.
 */
const versionsOfCoordinator = 1000;

/**
 * What one member knows of its group, and what it would publish. The coordinator is the member with the lowest rank
 * that is not believed gone. It alone publishes. No clock, no network.
 */
export class Ledger {
  #published: Published;
  readonly #self: Member;
  /** Believed dead or left, by rank: the incarnation. */
  readonly #gone = new Map<number, number>();
  /** It publishes no more views. */
  #isLeaving = false;

  /** The first view of a group, with one member. */
  static found(group: string, candidate: Candidate): { published: Published; self: Member } {
    const { rank = 0 } = candidate;
    const self = placed(candidate, rank, 1);
    return { published: { view: makeView(group, 1, [self]), nextRank: rank + 1 }, self };
  }

  constructor(published: Published, self: Member) {
    this.#published = published;
    this.#self = self;
  }

  get published(): Published {
    return this.#published;
  }

  get view(): View {
    return this.#published.view;
  }

  /** Members that are not believed gone, by rank. */
  get living(): Member[] {
    return this.view.members.filter((member) => !this.isGone(member));
  }

  /** Undefined when all are gone, this one included. */
  get coordinator(): Member | undefined {
    return this.living[0];
  }

  /** Whether this member is the coordinator. */
  get decides(): boolean {
    return this.coordinator !== undefined && isSameMember(this.coordinator, this.#self);
  }

  isGone(member: Member): boolean {
    return (
      this.#gone.get(member.rank) === member.incarnation ||
      (this.#isLeaving && isSameMember(member, this.#self))
    );
  }

  /** Takes a belief about a member. This member lives until it leaves, whatever others believe. */
  report(member: Member, isGone: boolean): void {
    if (isSameMember(member, this.#self)) return;
    const known = this.#gone.get(member.rank) ?? -1;
    if (isGone && member.incarnation > known) this.#gone.set(member.rank, member.incarnation);
    if (!isGone && member.incarnation === known) this.#gone.delete(member.rank);
  }

  leave(): void {
    this.#isLeaving = true;
  }

  /** Takes a view over. False for one that is not newer. */
  adopt(published: Published): boolean {
    const { view } = published;
    if (view.version <= this.view.version || view.group !== this.view.group) return false;
    const nextRank = Math.max(published.nextRank, this.#published.nextRank);
    this.#published = { view, nextRank };
    for (const [rank, incarnation] of this.#gone)
      if (memberOf(view, rank)?.incarnation !== incarnation) this.#gone.delete(rank);
    return true;
  }

  /** The next view if this member decides and some are gone; else undefined. */
  withoutTheGone(): Published | undefined {
    const { living } = this;
    if (!this.decides || living.length === this.view.members.length) return undefined;
    return this.#next(living, this.#published.nextRank);
  }

  /**
   * The next view with this candidate, in a place without a member. Its incarnation is the version, which no other
   * process has had in that place.
   */
  withCandidate(candidate: Candidate): { readonly published: Published; readonly rank: number } {
    const { rank = this.#published.nextRank } = candidate;
    const others = this.view.members.filter((member) => member.rank !== rank);
    const self = placed(candidate, rank, this.#nextVersion);
    const published = this.#next([...others, self], Math.max(this.#published.nextRank, rank + 1));
    return { published, rank };
  }

  get #nextVersion(): number {
    const { version, members } = this.view;
    if (members[0] !== undefined && isSameMember(members[0], this.#self)) return version + 1;
    return (Math.floor(version / versionsOfCoordinator) + 1) * versionsOfCoordinator;
  }

  #next(members: readonly Member[], nextRank: number): Published {
    return { view: makeView(this.view.group, this.#nextVersion, members), nextRank };
  }
}

function placed({ creates: _, ...candidate }: Candidate, rank: number, incarnation: number): Member {
  return { ...candidate, rank, incarnation };
}
