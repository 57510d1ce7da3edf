import { setTimeout as pause } from "node:timers/promises";
import { type Engine, RpcError } from "cinnabar/standard";
import type { Membership } from "../authority/authority.ts";
import type { GroupHost, HostedGroup } from "../host/group-host.ts";
import { Newest } from "../view/newest.ts";
import { isSameMember, type Member, type MemberName, memberOf, type View } from "../view/view.ts";
import { FollowedViews } from "./followed-views.ts";
import { Ledger } from "./ledger.ts";
import type {
  FollowRequest,
  JoinAnswer,
  JoinRequest,
  LeaveRequest,
  Published,
} from "./membership-service.ts";
import { probe } from "./probe.ts";

export interface CoordinatedOptions {
  readonly engine: Engine;
  readonly host: GroupHost;
  readonly published: Published;
  readonly self: Member;
  readonly probeTimeoutMs: number;
  readonly refreshMs: number;
}

/** How long a member that leaves looks for a coordinator that publishes a view without it, in milliseconds. */
const leaveTimeoutMs = 5000;

/** The pauses between the questions to a member whether it lives, after its stream of views has ended. */
const judgePausesMs = [0, 50, 200, 800, 3200];

/** How many members are asked for a newer view that another process has seen. */
const mostAsked = 3;

/** A member of a group with a coordinator, which it may be itself. */
export class CoordinatedMembership implements Membership, HostedGroup {
  readonly self: Member;
  readonly #options: CoordinatedOptions;
  readonly #ledger: Ledger;
  readonly #published: Newest<Published>;
  readonly #follower: FollowedViews;
  readonly #leaveHost: () => void;
  readonly #timer: NodeJS.Timeout;
  /** Members that follow views of this process. */
  readonly #followers = new Set<MemberName>();
  #refreshing: Promise<void> | undefined;
  #judging: Promise<unknown> | undefined;
  #isClosed = false;

  constructor(options: CoordinatedOptions) {
    const { engine, host, published, self, refreshMs } = options;
    this.self = self;
    this.#options = options;
    this.#ledger = new Ledger(published, self);
    this.#published = new Newest(published);
    this.#leaveHost = host.add(published.view.group, this);
    this.#follower = new FollowedViews({
      engine,
      group: published.view.group,
      rank: self.rank,
      choose: () => (this.#ledger.decides ? undefined : this.#ledger.coordinator),
      version: () => this.view.version,
      onPublished: (next) => this.#adopt(next),
      onBroken: (member) => this.#judge(member),
    });
    this.#timer = setInterval(() => {
      this.#refreshBy(1);
      this.#judgeStrangers();
    }, refreshMs).unref();
  }

  get view(): View {
    return this.#ledger.view;
  }

  get published(): Published {
    return this.#ledger.published;
  }

  async *views(): AsyncIterable<View> {
    for await (const { view } of this.#published.read("next")) yield view;
  }

  report(member: Member, status: "alive" | "dead" | "left"): void {
    this.#ledger.report(member, status !== "alive");
    this.#onChanged();
  }

  refresh(version: number): void {
    if (version > this.view.version) this.#refreshBy(mostAsked);
  }

  async leave(): Promise<void> {
    this.#ledger.leave();
    this.#onChanged();
    const { rank, incarnation } = this.self;
    const untilMs = performance.now() + leaveTimeoutMs;
    try {
      while (performance.now() < untilMs) {
        const { coordinator } = this.#ledger;
        // No other member is left, or a view without this member has come already.
        if (coordinator === undefined || !isSameMember(this.self, memberOf(this.view, rank))) return;
        try {
          const { published } = this.#ledger;
          return await this.#follower
            .client(coordinator)
            .leave({ published, rank, incarnation }, { timeoutMs: untilMs - performance.now() });
        } catch {
          this.#ledger.report(coordinator, true);
        }
      }
      throw new RpcError({
        code: "unavailable",
        message: `group "${this.view.group}": no member has published a view without rank ${rank}`,
      });
    } finally {
      await this.close();
    }
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearInterval(this.#timer);
    this.#leaveHost();
    this.#published.end();
    await this.#follower.close();
  }

  // ---- asked by others ----------------------------------------------------------------------------

  async *onFollow({ after, rank }: FollowRequest, signal: AbortSignal): AsyncIterable<Published> {
    const member = rank === undefined ? undefined : memberOf(this.view, rank);
    // A copy: a member with a broken stream may have begun another one.
    const follower = member && { ...member };
    if (follower !== undefined) this.#followers.add(follower);
    try {
      for await (const published of this.#published.read("now", signal))
        if (published.view.version > after) yield published;
    } finally {
      if (follower !== undefined) {
        this.#followers.delete(follower);
        this.#judgeFollower(follower);
      }
    }
  }

  async onJoin({ candidate }: JoinRequest): Promise<JoinAnswer> {
    for (;;) {
      const known = this.view.members.find(({ engine }) => engine === candidate.engine);
      if (known !== undefined) return { kind: "joined", published: this.published, rank: known.rank };
      const { coordinator, decides } = this.#ledger;
      if (coordinator === undefined) throw this.#closedError();
      const inTheWay = decides
        ? candidate.rank !== undefined && memberOf(this.view, candidate.rank)
        : candidate.rank === coordinator.rank && coordinator;
      if (inTheWay) {
        await this.#displace(inTheWay);
        continue;
      }
      if (!decides) return { kind: "elsewhere", urls: coordinator.urls };
      const { published, rank } = this.#ledger.withCandidate(candidate);
      this.#adopt(published);
      return { kind: "joined", published, rank };
    }
  }

  async onLeave(request: LeaveRequest): Promise<void> {
    const { published, rank, incarnation } = request;
    this.#adopt(published);
    const member = memberOf(this.view, rank);
    if (member === undefined || member.incarnation !== incarnation) return;
    this.report(member, "left");
    if (!isSameMember(member, memberOf(this.view, rank))) return;
    throw new RpcError({
      code: "failed_precondition",
      message: `group "${this.view.group}": rank ${this.self.rank} is not the coordinator`,
    });
  }

  // ---- what follows from what is known ------------------------------------------------------------

  /** Another process wants the place of this member: that is granted when it is certainly gone. */
  async #displace(holder: Member): Promise<void> {
    const verdict = isSameMember(holder, this.self)
      ? "answers"
      : await probe(this.#options.engine, holder, this.#options.probeTimeoutMs);
    if (this.#isClosed) throw this.#closedError();
    if (verdict === "gone") return this.report(holder, "dead");
    const { group } = this.view;
    throw verdict === "answers"
      ? new RpcError({
          code: "failed_precondition",
          message: `group "${group}": rank ${holder.rank} is taken by a process that answers`,
        })
      : new RpcError({
          code: "unavailable",
          message: `group "${group}": rank ${holder.rank} is taken by a process that does not answer, and is not known to be dead`,
        });
  }

  /** Its connection has ended. A process that is certainly gone is not waited for until the detector finds out. */
  async #judge(member: Member): Promise<void> {
    if (!this.#isMember(member)) return;
    const verdict = await probe(this.#options.engine, member, this.#options.probeTimeoutMs);
    if (verdict === "gone" && this.#isMember(member)) this.report(member, "dead");
  }

  /** As `judge`, several times: a process that ends may still refuse others in an orderly way. */
  async #judgeFollower(member: Member): Promise<void> {
    for (const ms of judgePausesMs) {
      await pause(ms, undefined, { ref: false });
      if (!this.#ledger.decides || !this.#isMember(member)) return;
      await this.#judge(member);
    }
  }

  /** A member that has died before it followed, or before this process decided, leaves no connection that ends. */
  #judgeStrangers(): void {
    if (!this.#ledger.decides) return;
    const known = [this.self, ...this.#followers];
    const strangers = this.view.members.filter((member) => !known.some((each) => isSameMember(each, member)));
    if (strangers.length === 0) return;
    this.#judging ??= Promise.all(strangers.map((member) => this.#judge(member))).finally(() => {
      this.#judging = undefined;
    });
  }

  #isMember(member: Member): boolean {
    const isKnown = isSameMember(member, memberOf(this.view, member.rank));
    return isKnown && !this.#isClosed && !this.#ledger.isGone(member);
  }

  #adopt(published: Published): void {
    if (!this.#ledger.adopt(published)) return;
    this.#published.set(this.#ledger.published);
    this.#follower.keep(this.view.members);
    this.#onChanged();
  }

  #onChanged(): void {
    if (this.#isClosed) return;
    const next = this.#ledger.withoutTheGone();
    if (next !== undefined) this.#adopt(next);
    else this.#follower.onChanged();
  }

  #refreshBy(asked: number): void {
    if (this.#isClosed || this.#options.engine.state === "closed") return;
    this.#refreshing ??= this.#refresh(asked).finally(() => {
      this.#refreshing = undefined;
    });
  }

  /** Asks up to so many other members for their views, at random, until one has a newer view. */
  async #refresh(asked: number): Promise<void> {
    const others = this.view.members.filter((member) => !isSameMember(member, this.self));
    const { version } = this.view;
    for (let i = 0; i < asked && others.length > 0 && this.view.version === version && !this.#isClosed; i++) {
      const [other] = others.splice(Math.floor(Math.random() * others.length), 1) as [Member];
      const published = await this.#follower.viewOf(other, this.#options.probeTimeoutMs);
      if (published !== undefined && !this.#isClosed) this.#adopt(published);
    }
  }

  #closedError(): RpcError {
    return new RpcError({
      code: "unavailable",
      message: `rank ${this.self.rank} of group "${this.view.group}" is leaving`,
    });
  }
}
