import type { DetectorEvent } from "../../src/detector/detector.ts";
import type { MemberId } from "../../src/detector/message.ts";

/** What the members of a simulation have reported, by the member it concerns. */
export class Record {
  /** When any member first suspected a member, and first declared it dead. */
  readonly firstSuspectedMs = new Map<MemberId, number>();
  readonly firstDeadMs = new Map<MemberId, number>();
  suspicions = 0;
  sleeps = 0;
  excluded = 0;
  /** The members that believe now that a member is dead. */
  readonly #believers = new Map<MemberId, Set<MemberId>>();

  readonly onEvent = (observer: MemberId, event: DetectorEvent, atMs: number): void => {
    if (event.type === "slept") this.sleeps += 1;
    if (event.type === "excluded") this.excluded += 1;
    if (event.type !== "status") return;
    const { member, status, previous } = event;
    if (status === "suspect") {
      this.suspicions += 1;
      if (!this.firstSuspectedMs.has(member)) this.firstSuspectedMs.set(member, atMs);
    }
    if (status === "dead") {
      if (!this.firstDeadMs.has(member)) this.firstDeadMs.set(member, atMs);
      this.#believersOf(member).add(observer);
    }
    if (previous === "dead") this.#believersOf(member).delete(observer);
  };

  /** How many members believe that a member is dead. */
  believers(member: MemberId): number {
    return this.#believers.get(member)?.size ?? 0;
  }

  /** How many of the accepted members any observer has ever declared dead. */
  everDead(isAsked: (member: MemberId) => boolean): number {
    return [...this.firstDeadMs.keys()].filter(isAsked).length;
  }

  /** Whether no member believes another one dead. */
  get isWhole(): boolean {
    return [...this.#believers.values()].every(({ size }) => size === 0);
  }

  #believersOf(member: MemberId): Set<MemberId> {
    const known = this.#believers.get(member);
    if (known !== undefined) return known;
    const believers = new Set<MemberId>();
    this.#believers.set(member, believers);
    return believers;
  }
}
