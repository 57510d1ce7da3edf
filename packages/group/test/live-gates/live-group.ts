import type { DetectorEvent } from "../../src/detector/detector.ts";
import type { MemberId, Status } from "../../src/detector/message.ts";
import type { LiveMember } from "../../src/live/failure-detector.ts";
import { Child } from "./child.ts";
import { Expectations } from "./expectations.ts";
import { monotonicMs } from "./monotonic.ts";
import type { Order, Report } from "./orders.ts";

export interface LiveGroupOptions {
  /** The period of all detectors; all else about them is the default. */
  readonly periodMs: number;
  /** Default: 2000. */
  readonly stalledAfterMs?: number;
}

/** An event that a member has reported, and when. */
export interface Sighting {
  readonly observer: MemberId;
  readonly atMs: number;
  readonly event: DetectorEvent;
}

export type MemberStats = Report & { readonly kind: "stats" };

/** How many processes a live group has. */
export const liveMembers = 16;

/** As much as an authority's incarnation has of the detector's: enough for any number of refutations. */
const incarnationsOfProcess = 2 ** 20;

/** A group of processes on addresses of loopback, each with a real detector. It collects their reports. */
export class LiveGroup implements AsyncDisposable {
  readonly sightings: Sighting[] = [];
  readonly #options: LiveGroupOptions;
  readonly #children = new Map<MemberId, Child<Order, Report>>();
  readonly #expectations = new Expectations();
  readonly #ready = new Set<MemberId>();
  readonly #stats = new Map<MemberId, MemberStats>();
  /** What a member believes of another one, where that is not `alive`. */
  readonly #beliefs = new Map<MemberId, Map<MemberId, Status>>();
  #members: readonly LiveMember[];

  static async start(options: LiveGroupOptions): Promise<LiveGroup> {
    const group = new LiveGroup(options);
    await group.#start(group.ids);
    return group;
  }

  private constructor(options: LiveGroupOptions) {
    this.#options = options;
    // Addresses of its own for each run: another network of 127.0.0.0/8.
    const network = `127.${1 + (process.pid % 250)}.${Math.floor(Math.random() * 250)}`;
    this.#members = Array.from({ length: liveMembers }, (_, id) => ({
      ...{ id, address: `${network}.${id + 1}:7946`, incarnation: 0 },
    }));
  }

  get ids(): readonly MemberId[] {
    return this.#members.map(({ id }) => id);
  }

  /** All but these. */
  othersThan(...ids: readonly MemberId[]): readonly MemberId[] {
    return this.ids.filter((id) => !ids.includes(id));
  }

  /** Kills members at once. @returns when */
  kill(...ids: readonly MemberId[]): number {
    const atMs = monotonicMs();
    for (const id of ids) this.#child(id).kill();
    return atMs;
  }

  /** Stops a member. @returns when it stands still */
  async stop(id: MemberId): Promise<number> {
    await this.#child(id).stop();
    return monotonicMs();
  }

  /** Lets a member go on that was stopped. @returns when */
  resume(id: MemberId): number {
    const atMs = monotonicMs();
    this.#child(id).resume();
    return atMs;
  }

  /** Keeps the main thread of a member busy. */
  compute(id: MemberId, forMs: number): void {
    this.#child(id).order({ kind: "compute", forMs });
  }

  /** Starts successors of members that were killed. Resolves when all believe each other alive. */
  async replace(...ids: readonly MemberId[]): Promise<void> {
    this.#members = this.#members.map((member) =>
      ids.includes(member.id)
        ? { ...member, incarnation: (member.incarnation ?? 0) + incarnationsOfProcess }
        : member,
    );
    await Promise.all(ids.map((id) => this.#child(id).ended()));
    await this.#start(ids);
    const others = this.othersThan(...ids);
    for (const id of others) this.#child(id).order({ kind: "adopt", members: this.#members });
    // A later incarnation makes members forget their beliefs, without an event.
    for (const id of others) for (const replaced of ids) this.#beliefsOf(id).delete(replaced);
    await this.untilCalm();
  }

  /** Resolves when all believe each other alive. */
  async untilCalm(): Promise<void> {
    await this.until("all believe each other alive", () => this.#doAll(this.ids, this.ids, "alive"));
  }

  /** Resolves when all other members believe that status of each of these. */
  async untilBelieved(status: Status, ...ids: readonly MemberId[]): Promise<void> {
    const others = this.othersThan(...ids);
    await this.until(`all believe ${ids.join(", ")} ${status}`, () => this.#doAll(others, ids, status));
  }

  /** Resolves when it is so; rejects with an Error when it takes too long. */
  until(what: string, isSo: () => boolean): Promise<void> {
    return this.#expectations.until(what, isSo);
  }

  /** The counters of each member. */
  async stats(): Promise<ReadonlyMap<MemberId, MemberStats>> {
    this.#stats.clear();
    for (const id of this.ids) this.#child(id).order({ kind: "stats" });
    await this.until("all have told what they count", () => this.#stats.size === liveMembers);
    return new Map(this.#stats);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const children = [...this.#children.values()];
    for (const child of children) child.kill();
    await Promise.all(children.map((child) => child.ended()));
  }

  async #start(ids: readonly MemberId[]): Promise<void> {
    const { periodMs, stalledAfterMs = 2000 } = this.#options;
    for (const self of ids) {
      this.#ready.delete(self);
      this.#beliefs.delete(self);
      const child = new Child<Order, Report>({
        program: "member-process",
        onReport: (report) => this.#onReport(self, report),
      });
      this.#children.set(self, child);
      child.order({ kind: "start", self, members: this.#members, detector: { periodMs }, stalledAfterMs });
    }
    await this.until("all have started", () => ids.every((id) => this.#ready.has(id)));
  }

  #onReport(observer: MemberId, report: Report): void {
    if (report.kind === "ready") this.#ready.add(observer);
    else if (report.kind === "stats") this.#stats.set(observer, report);
    else {
      const { event, atMs } = report;
      this.sightings.push({ observer, atMs, event });
      if (event.type === "status") this.#beliefsOf(observer).set(event.member, event.status);
    }
    this.#expectations.check();
  }

  #doAll(observers: readonly MemberId[], ids: readonly MemberId[], status: Status): boolean {
    return observers.every((observer) => {
      const beliefs = this.#beliefsOf(observer);
      return ids.every((id) => id === observer || (beliefs.get(id) ?? "alive") === status);
    });
  }

  #beliefsOf(observer: MemberId): Map<MemberId, Status> {
    const known = this.#beliefs.get(observer);
    if (known !== undefined) return known;
    const beliefs = new Map<MemberId, Status>();
    this.#beliefs.set(observer, beliefs);
    return beliefs;
  }

  #child(id: MemberId): Child<Order, Report> {
    const child = this.#children.get(id);
    if (child === undefined) throw new RangeError(`the group has no member ${id}`);
    return child;
  }
}
