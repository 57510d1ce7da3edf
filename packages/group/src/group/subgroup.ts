import { createHash } from "node:crypto";
import { boolean, type FieldsOf, resolveOptions } from "cinnabar/options";
import { type Engine, RpcError } from "cinnabar/standard";
import type { ServedByMember } from "../host/group-host.ts";
import { isSameMember, type Member, makeView, memberOf, notInViewFailure, type View } from "../view/view.ts";
import type { MemberLink, NamedMember } from "./member-link.ts";
import { MemberSet } from "./member-set.ts";

/** The options of `group.subgroup`. */
export interface SubgroupOptions {
  /**
   * What happens when a member leaves the group, or another process takes its rank there. `true`: the subgroup goes on
   * without it, and the process that takes its rank takes its place here. `false`: the subgroup breaks for ever. Its
   * calls and collectives fail with `aborted`. Default `true`.
   */
  readonly followRemovals?: boolean | undefined;
}

const fields = { followRemovals: boolean(true) } satisfies FieldsOf<SubgroupOptions>;

/** The events of `subgroup.on`, by name. */
export interface SubgroupEvents {
  /** There is another view of the group, and so of the subgroup. */
  readonly view: { readonly view: View };
  /** A member left, and the subgroup does not follow. */
  readonly broken: { readonly error: RpcError };
}

/** The members of a subgroup: their ranks in the group, or which members are chosen. */
export type SubgroupMembers = readonly number[] | ((member: Member) => boolean);

/** A group as its subgroups need it. `Group` has this. */
export interface ParentGroup {
  readonly name: string;
  readonly engine: Engine;
  readonly self: Member | undefined;
  readonly view: View;
  at(rank: number): MemberLink;
  reach(member: NamedMember): MemberLink;
  on(event: "view", listener: (detail: { readonly view: View }) => void): () => void;
  on(event: "lost", listener: (detail: { readonly error: unknown }) => void): () => void;
}

const longestName = 48;

/**
 * Some members of a group, with ranks of their own from 0. Its view is made of the group's view and has its version. So
 * all processes with the same members and the same view of the group have the same view of the subgroup. Its name is
 * made of the group's name, its own, and a digest of the ranks. It serves what the group serves. It holds no connections
 * of its own, and closes with its group.
 */
export class Subgroup extends MemberSet<SubgroupEvents> implements Disposable {
  /** The ranks in the group, by the rank in the subgroup. */
  readonly ranks: readonly number[];
  readonly #group: ParentGroup;
  readonly #begun: View;
  readonly #follows: boolean;
  readonly #stop: readonly (() => void)[];
  #broken: RpcError | undefined;

  /** @internal Made by `group.subgroup`. `served`: what this process executes for others; undefined for an observer. */
  constructor(
    group: ParentGroup,
    served: ServedByMember | undefined,
    name: string,
    members: SubgroupMembers,
    options: SubgroupOptions,
    onClose: () => void,
  ) {
    assertName(name);
    const { followRemovals } = resolveOptions("subgroup", options, fields);
    const { view, self } = group;
    const ranks = Object.freeze(ranksOf(group, name, members));
    if (self !== undefined && !ranks.includes(self.rank))
      throw new RpcError({
        code: "failed_precondition",
        message: `subgroup "${name}": this process has the rank ${self.rank}, which is not among its members; observe the group to call it from outside`,
      });
    // Collectives do not mix with those of a subgroup that has the same name and other members.
    const whole = `${group.name}/${name}-${digestOf(ranks)}`;
    const selfHere = (): Member | undefined =>
      group.self && { ...group.self, rank: ranks.indexOf(group.self.rank) };
    super(group.engine, derivedView(whole, ranks, view), selfHere, served);
    this.ranks = ranks;
    this.#group = group;
    this.#follows = followRemovals;
    this.#begun = view;
    this.#stop = [
      group.on("view", (event) => this.#adopt(event.view)),
      group.on("lost", ({ error }) => this.newest.end(error)),
      onClose,
    ];
  }

  /** Why it is broken: the `aborted` that its calls fail with. Undefined while it is whole, or follows. */
  get broken(): RpcError | undefined {
    return this.#broken;
  }

  at(rank: number): MemberLink {
    if (this.#broken !== undefined) throw this.#broken;
    if (memberOf(this.view, rank) === undefined) throw notInViewFailure(this.name, rank, this.view.version);
    return this.#group.at(this.ranks[rank] as number);
  }

  /** @internal */
  reach(named: NamedMember): MemberLink {
    if (this.#broken !== undefined) throw this.#broken;
    const rank = this.ranks[named.rank];
    if (rank === undefined) throw notInViewFailure(this.name, named.rank, this.view.version);
    return this.#group.reach({ ...named, rank });
  }

  /** Calls `listener` for each event of that name. The returned function removes it. */
  on<E extends keyof SubgroupEvents>(event: E, listener: (detail: SubgroupEvents[E]) => void): () => void {
    return this.listeners.on(event, listener);
  }

  /** Stops following the group. Safe to call twice; the group does it when it closes. */
  close(): void {
    for (const stop of this.#stop) stop();
    this.end();
    this.listeners.clear();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #adopt(parent: View): void {
    const view = derivedView(this.name, this.ranks, parent);
    this.newest.set(view);
    if (!this.#follows && this.#broken === undefined) this.#breakBy(parent);
    this.listeners.tell("view", { view });
  }

  #breakBy(parent: View): void {
    const lost = this.ranks.find(
      (rank) => !isSameMember(memberOf(this.#begun, rank) as Member, memberOf(parent, rank)),
    );
    if (lost === undefined) return;
    this.#broken = new RpcError({
      code: "aborted",
      message: `subgroup "${this.name}": rank ${this.ranks.indexOf(lost)} left, and the subgroup does not follow`,
      cause: notInViewFailure(this.#group.name, lost, parent.version),
    });
    this.listeners.tell("broken", { error: this.#broken });
  }
}

/** @throws TypeError for a name that no subgroup can have */
function assertName(name: string): void {
  if (typeof name !== "string" || !/^[^\p{Cc}/]+$/u.test(name) || name.length > longestName)
    throw new TypeError(
      `subgroup: a name has 1 to ${longestName} characters, no "/" and no control characters`,
    );
}

/** The view of the group with the members of the subgroup and their ranks there. */
function derivedView(name: string, ranks: readonly number[], { version, members }: View): View {
  const placed = members.map((member) => ({ ...member, rank: ranks.indexOf(member.rank) }));
  return makeView(
    name,
    version,
    placed.filter(({ rank }) => rank >= 0),
  );
}

/** The ranks in the group, checked. */
function ranksOf({ name: group, view }: ParentGroup, name: string, members: SubgroupMembers): number[] {
  const ranks =
    typeof members === "function" ? view.members.filter(members).map(({ rank }) => rank) : [...members];
  if (ranks.length === 0) throw new RangeError(`subgroup "${name}": it has no members`);
  const twice = ranks.find((rank, place) => ranks.indexOf(rank) !== place);
  if (twice !== undefined) throw new RangeError(`subgroup "${name}": rank ${twice} is there twice`);
  const unknown = ranks.find((rank) => memberOf(view, rank) === undefined);
  if (unknown !== undefined) throw notInViewFailure(group, unknown, view.version);
  return ranks;
}

const digestOf = (ranks: readonly number[]): string =>
  createHash("sha256").update(ranks.join(" ")).digest("hex").slice(0, 8);
