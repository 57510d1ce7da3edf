import { type Engine, RpcError } from "cinnabar/standard";
import type { Membership, Observation } from "../authority/authority.ts";
import type { Status } from "../detector/message.ts";
import type { Presence } from "../host/freshness.ts";
import type { ServedByMember } from "../host/group-host.ts";
import type { LiveStats } from "../live/driver.ts";
import { isSameMember, type Member, memberOf, notInViewFailure, type View } from "../view/view.ts";
import { channels } from "./events.ts";
import type { GroupDetector, StatusChange } from "./group-detector.ts";
import { MemberLink, type NamedMember, Strangers } from "./member-link.ts";
import { MemberSet } from "./member-set.ts";
import { Subgroup, type SubgroupMembers, type SubgroupOptions } from "./subgroup.ts";

/** The events of `group.on`, by name. */
export interface GroupEvents {
  /** There is another view. `joined` and `left` compare it with the one before. */
  readonly view: {
    readonly view: View;
    readonly joined: readonly Member[];
    readonly left: readonly Member[];
  };
  /** The belief of this process's failure detector about a member has changed. */
  readonly status: StatusChange;
  /** This process was removed from the group. */
  readonly excluded: { readonly view: View };
  /** The authority has failed for ever: the views will not change any more. */
  readonly lost: { readonly error: unknown };
}

/** What a group has counted, and what it holds. Plain data. */
export interface GroupStats {
  readonly version: number;
  readonly members: number;
  /** Views that came after the first one. */
  readonly viewsAdopted: number;
  /** Views that were not newer than the one that was known. */
  readonly viewsRefused: number;
  /** Members that this process has called, or may call. */
  readonly links: number;
  /** Undefined without a failure detector. */
  readonly detector: LiveStats | undefined;
}

/** What a group is made of. */
export interface GroupParts {
  readonly engine: Engine;
  readonly observation: Observation;
  /** Undefined for an observer. */
  readonly membership?: Membership | undefined;
  /** What this process executes for others; undefined for an observer. */
  readonly served?: ServedByMember | undefined;
  /** Starts the detector; it reports each change of its beliefs to `onStatus`. Undefined for no detector. */
  readonly startDetector?: ((onStatus: (change: StatusChange) => void) => Promise<GroupDetector>) | undefined;
  /** What calls to members say of the view that this process has. Undefined where views do not change. */
  readonly presence?: Presence;
  /** What to do when this process was removed. That may be before `open` resolves. */
  readonly onExcluded?: (group: Group) => void;
  readonly onClose?: () => void;
}

/**
 * A group of processes as one of them sees it: a member (`joinGroup`, `createGroup`) or an observer (`observeGroup`).
 * Close it before its engine.
 */
export class Group extends MemberSet<GroupEvents> implements AsyncDisposable {
  readonly #parts: GroupParts;
  readonly #links = new Map<number, MemberLink>();
  readonly #strangers: Strangers;
  readonly #subgroups = new Set<Subgroup>();
  #detector: GroupDetector | undefined;
  #viewsAdopted = 0;
  #viewsRefused = 0;
  #isExcluded = false;
  #closing: Promise<void> | undefined;

  /** @internal For `joinGroup`, `createGroup` and `observeGroup`. Rejects with what the detector refuses; the observation is closed then. */
  static async open(parts: GroupParts): Promise<Group> {
    const group = new Group(parts);
    try {
      group.#detector = await parts.startDetector?.((change) => group.#onStatus(change));
      // It may have been removed while its detector started.
      if (group.#closing === undefined) group.#detector?.adopt(group.view);
      else await group.#detector?.close();
    } catch (error) {
      await group.close();
      throw error;
    }
    return group;
  }

  private constructor(parts: GroupParts) {
    super(parts.engine, parts.observation.view, () => parts.membership?.self, parts.served);
    this.#parts = parts;
    this.#strangers = new Strangers(parts.engine, parts.presence);
    this.#follow();
  }

  /** Whether a view without this member has come. */
  get isExcluded(): boolean {
    return this.#isExcluded;
  }

  at(rank: number): MemberLink {
    const known = this.#links.get(rank);
    if (known !== undefined) return known;
    if (this.#closing !== undefined) throw this.#closedError();
    const member = memberOf(this.view, rank);
    if (member === undefined) throw notInViewFailure(this.name, rank, this.view.version);
    const link = new MemberLink(this.#parts.engine, member, this.#parts.presence);
    this.#links.set(rank, link);
    return link;
  }

  /** @internal */
  reach(named: NamedMember): MemberLink {
    const member = memberOf(this.view, named.rank);
    if (member?.incarnation === named.incarnation) return this.at(named.rank);
    if (this.#closing !== undefined) throw this.#closedError();
    const message = `group "${this.name}": too many connections to members that are in no view`;
    return this.#strangers.reach(named, new RpcError({ code: "resource_exhausted", message }));
  }

  /**
   * Some members of the group, with ranks of their own from 0: in the order of the list, or of the ranks that the
   * predicate accepts. The predicate is called once, with the present view. All members must name the same ranks in the
   * same order: otherwise their collectives refuse each other.
   *
   * @throws TypeError or RangeError for a bad name, an empty list, a rank that occurs twice, and a subgroup that is
   * open already. RpcError `failed_precondition` for a rank that the view does not have, and when this process is a
   * member of the group and not of the subgroup; `unavailable` when the group is closed.
   * @example
   * const readers = group.subgroup("readers", ({ metadata }) => metadata.role === "reader");
   * await readers.barrier("warm");
   */
  subgroup(name: string, members: SubgroupMembers, options: SubgroupOptions = {}): Subgroup {
    if (this.#closing !== undefined) throw this.#closedError();
    const { served } = this.#parts;
    const subgroup: Subgroup = new Subgroup(this, served, name, members, options, () =>
      this.#subgroups.delete(subgroup),
    );
    this.#subgroups.add(subgroup);
    return subgroup;
  }

  /**
   * What the failure detector of this process believes of a member. Undefined for ranks that are not in the view, for
   * members without a detector, and if this process has no detector.
   */
  statusOf(rank: number): Status | undefined {
    return this.#detector?.statusOf(rank);
  }

  /** Counters since the group was joined, and what it holds now. */
  async stats(): Promise<GroupStats> {
    const { version, members } = this.view;
    return {
      version,
      members: members.length,
      viewsAdopted: this.#viewsAdopted,
      viewsRefused: this.#viewsRefused,
      links: this.#links.size,
      detector: this.#closing === undefined ? await this.#detector?.stats() : undefined,
    };
  }

  /** Calls `listener` for each event of that name. The returned function removes it. */
  on<E extends keyof GroupEvents>(event: E, listener: (detail: GroupEvents[E]) => void): () => void {
    return this.listeners.on(event, listener);
  }

  /**
   * Leaves the group and closes. Resolves when a view without this member is published. An observer just closes.
   *
   * @throws RpcError `unavailable` when the authority cannot be reached; the group is closed then too
   */
  async leave(): Promise<void> {
    try {
      await this.#parts.membership?.leave();
    } finally {
      await this.close();
    }
  }

  /** Ends without a goodbye: a member stays in the view until its death is noticed. Safe to call twice. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #follow(): Promise<void> {
    try {
      for await (const view of this.#parts.observation.views()) this.#adopt(view);
    } catch (error) {
      this.newest.end(error);
      this.listeners.tell("lost", { error });
    }
  }

  #adopt(view: View): void {
    const former = this.view;
    if (this.#closing !== undefined) return;
    if (view.version <= former.version) {
      this.#viewsRefused += 1;
      return;
    }
    this.#viewsAdopted += 1;
    const left = former.members.filter((member) => !isSameMember(member, memberOf(view, member.rank)));
    const joined = view.members.filter((member) => !isSameMember(member, memberOf(former, member.rank)));
    this.newest.set(view);
    this.#detector?.adopt(view);
    for (const { rank } of left) this.#endLink(rank, notInViewFailure(this.name, rank, view.version));
    this.#strangers.adopt(view, (rank) => notInViewFailure(this.name, rank, view.version));
    this.listeners.tell("view", { view, joined, left });
    if (channels.view.hasSubscribers) channels.view.publish({ group: this.name, view, joined, left });
    const { self } = this;
    if (self === undefined || this.#isExcluded || isSameMember(self, memberOf(view, self.rank))) return;
    this.#isExcluded = true;
    this.listeners.tell("excluded", { view });
    if (channels.excluded.hasSubscribers) channels.excluded.publish({ group: this.name, view });
    this.#parts.onExcluded?.(this);
  }

  #onStatus(change: StatusChange): void {
    this.listeners.tell("status", change);
    if (!channels.member.hasSubscribers) return;
    const { member, status, previous } = change;
    channels.member.publish({ group: this.name, rank: member.rank, status, previous });
  }

  #endLink(rank: number, reason: RpcError): void {
    this.#links.get(rank)?.end(reason);
    this.#links.delete(rank);
  }

  async #close(): Promise<void> {
    this.end();
    this.#parts.onClose?.();
    await Promise.all([this.#parts.observation.close(), this.#detector?.close()]);
    for (const rank of [...this.#links.keys()]) this.#endLink(rank, this.#closedError());
    this.#strangers.end(this.#closedError());
    for (const subgroup of this.#subgroups) subgroup.close();
    this.listeners.clear();
  }

  #closedError(): RpcError {
    return new RpcError({ code: "unavailable", message: `group "${this.name}" has been closed` });
  }
}
