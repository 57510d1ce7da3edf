import { EventEmitter } from "node:events";
import { type Engine, RpcError } from "cinnabar/standard";
import type { Membership, Observation } from "../authority/authority.ts";
import { Newest } from "../view/newest.ts";
import { isSameMember, type Member, memberOf, type View } from "../view/view.ts";
import { MemberLink } from "./member-link.ts";

/** The events of `group.on`, by name. */
export interface GroupEvents {
  /** There is another view. `joined` and `left` compare it with the one before. */
  readonly view: {
    readonly view: View;
    readonly joined: readonly Member[];
    readonly left: readonly Member[];
  };
  /** A view is without this member. It is the last one. */
  readonly excluded: { readonly view: View };
  /** The authority is lost for good: the views will not change any more. */
  readonly lost: { readonly error: unknown };
}

/** What a group is made of. */
export interface GroupParts {
  readonly engine: Engine;
  readonly observation: Observation;
  /** Of a member; undefined for an observer. */
  readonly membership: Membership | undefined;
}

/**
 * A group of processes as one of them sees it: a member (`joinGroup`, `createGroup`) or an observer (`observeGroup`).
 * Close it before its engine.
 */
export class Group implements AsyncDisposable {
  readonly name: string;
  readonly #parts: GroupParts;
  readonly #views: Newest<View>;
  readonly #links = new Map<number, MemberLink>();
  readonly #events = new EventEmitter();
  #isExcluded = false;
  #closing: Promise<void> | undefined;

  /** @internal Made by `joinGroup` and its kin. */
  constructor(parts: GroupParts) {
    const { view } = parts.observation;
    this.name = view.group;
    this.#parts = parts;
    this.#views = new Newest(view);
    this.#follow();
  }

  /** The newest view. */
  get view(): View {
    return this.#views.value;
  }

  /** This process as a member; undefined for an observer. */
  get self(): Member | undefined {
    return this.#parts.membership?.self;
  }

  /** Whether a view without this member has come. */
  get isExcluded(): boolean {
    return this.#isExcluded;
  }

  /**
   * The views, from the newest of now on. Who reads slowly sees the newest one and misses those between. It ends when the
   * group is closed or `signal` aborts, and throws when the authority is lost for good.
   *
   * @example
   * for await (const { version, members } of group.views()) console.log(version, members.length);
   */
  views(signal?: AbortSignal): AsyncIterableIterator<View> {
    return this.#views.read("now", signal);
  }

  /**
   * Resolves to the first view that the predicate accepts, the newest of now included.
   *
   * @example
   * await group.when(({ members }) => members.length >= 8, AbortSignal.timeout(30_000));
   *
   * @throws RpcError `cancelled` when `signal` aborts or the group is closed before; what the predicate throws
   */
  async when(accepts: (view: View) => boolean, signal?: AbortSignal): Promise<View> {
    for await (const view of this.views(signal)) if (accepts(view)) return view;
    const why = signal?.aborted === true ? "the signal aborted" : "it was closed";
    throw new RpcError({
      code: "cancelled",
      message: `group "${this.name}": ${why} before a view was accepted`,
      ...(signal?.aborted === true && { cause: signal.reason }),
    });
  }

  /**
   * The member with this rank. It stays the same process: when that leaves the view or another one takes its rank, all
   * calls to it fail, and `at` gives the new one.
   *
   * @throws RpcError `failed_precondition` when the newest view has no such rank, or the group is closed
   */
  at(rank: number): MemberLink {
    const known = this.#links.get(rank);
    if (known !== undefined) return known;
    const member = this.#closing === undefined ? memberOf(this.view, rank) : undefined;
    if (member === undefined) throw this.#notInView(rank);
    const link = new MemberLink(this.#parts.engine, member);
    this.#links.set(rank, link);
    return link;
  }

  /** Calls `listener` for each event of that name. The returned function removes it. */
  on<E extends keyof GroupEvents>(event: E, listener: (detail: GroupEvents[E]) => void): () => void {
    const entry = (detail: GroupEvents[E]) => {
      try {
        listener(detail);
      } catch (error) {
        // An uncaught exception, as everywhere in the package: the group goes on.
        process.nextTick(() => {
          throw error;
        });
      }
    };
    this.#events.on(event, entry);
    return () => void this.#events.off(event, entry);
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

  /** Ends without a word: a member stays in the view until its death is noticed. Safe to call twice. */
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
      this.#views.end(error);
      this.#tell("lost", { error });
    }
  }

  #adopt(view: View): void {
    const former = this.view;
    if (view.version <= former.version || this.#closing !== undefined) return;
    const left = former.members.filter((member) => !isSameMember(member, memberOf(view, member.rank)));
    const joined = view.members.filter((member) => !isSameMember(member, memberOf(former, member.rank)));
    this.#views.set(view);
    for (const { rank } of left) this.#endLink(rank);
    this.#tell("view", { view, joined, left });
    const { self } = this;
    if (self === undefined || this.#isExcluded || isSameMember(self, memberOf(view, self.rank))) return;
    this.#isExcluded = true;
    this.#tell("excluded", { view });
  }

  #endLink(rank: number): void {
    this.#links.get(rank)?.end(this.#notInView(rank));
    this.#links.delete(rank);
  }

  async #close(): Promise<void> {
    await this.#parts.observation.close();
    for (const rank of [...this.#links.keys()]) this.#endLink(rank);
    this.#views.end();
    this.#events.removeAllListeners();
  }

  #tell<E extends keyof GroupEvents>(event: E, detail: GroupEvents[E]): void {
    this.#events.emit(event, detail);
  }

  #notInView(rank: number): RpcError {
    const why =
      this.#closing === undefined ? `not in view ${this.view.version}` : "out of reach: it is closed";
    return new RpcError({
      code: "failed_precondition",
      reason: "NotInView",
      message: `group "${this.name}": rank ${rank} is ${why}`,
    });
  }
}
