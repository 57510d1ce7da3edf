import { type AnyService, type Engine, RpcError } from "cinnabar/standard";
import {
  type CollectiveClient,
  type CollectiveStats,
  Collectives,
  isActive,
} from "../collective/collectives.ts";
import type { Members } from "../collective/members.ts";
import { Arrivals } from "../exchange/arrivals.ts";
import { type ExchangeOptions, Exchanges } from "../exchange/exchanges.ts";
import type { ServedByMember } from "../host/group-host.ts";
import { Newest } from "../view/newest.ts";
import type { Member, View } from "../view/view.ts";
import { Listeners } from "./events.ts";
import type { MemberLink, NamedMember } from "./member-link.ts";

/** What groups and subgroups have in common: members with ranks, in a view that others follow, and what they do together. */
export abstract class MemberSet<Events> implements Members {
  readonly name: string;
  /** The engine that the group was given. It stays its opener's. */
  readonly engine: Engine;
  /** @internal */
  protected readonly newest: Newest<View>;
  /** @internal */
  protected readonly listeners = new Listeners<Events>();
  readonly #collectives: Collectives;
  readonly #exchanges: Exchanges;
  readonly #opened: readonly Disposable[];
  readonly #self: () => Member | undefined;

  /**
   * @internal `self`: this process as a member. `served`: what it executes for others; undefined for an observer.
   *
   * @throws TypeError where this process is a member of a group with this name already
   */
  constructor(
    engine: Engine,
    view: View,
    self: () => Member | undefined,
    served: ServedByMember | undefined,
  ) {
    this.name = view.group;
    this.engine = engine;
    this.newest = new Newest(view);
    this.#self = self;
    this.#collectives = new Collectives(this, served?.implementations ?? []);
    this.#exchanges = new Exchanges(
      this.#collectives,
      served?.exchanges.arrivals(this.name) ?? new Arrivals(),
    );
    this.#opened = (served?.implementations ?? [])
      .filter(isActive)
      .map((each) => each.open(this.#collectives));
  }

  /** The newest view. */
  get view(): View {
    return this.newest.value;
  }

  /** This process as a member; undefined for an observer. A subgroup gives its rank there. */
  get self(): Member | undefined {
    return this.#self();
  }

  /**
   * The member with this rank. It stays the same process: when that leaves the view or another one takes its rank, all
   * calls to it fail, and `at` gives the new one. The member itself may be called too. From a subgroup, its `member` has
   * the rank in the group.
   *
   * @example
   * const store = group.at(3).client(Store);
   *
   * @throws RpcError `failed_precondition` when the newest view has no such rank (`notInView(error)` is true then);
   * `unavailable` when the group is closed; `aborted` when the subgroup is broken. TypeError when no URL of the member is
   * one that Cinnabar knows.
   */
  abstract at(rank: number): MemberLink;

  /** @internal A member that a message of the group names: the one in the view, or one of a view that others have. */
  abstract reach(named: NamedMember): MemberLink;

  /**
   * The views, from the present one on. A slow reader gets the newest one and misses those between. It ends when the
   * group is closed or `signal` aborts, and throws when the authority has failed for ever.
   *
   * @example
   * for await (const { version, members } of group.views()) console.log(version, members.length);
   */
  views(signal?: AbortSignal): AsyncIterableIterator<View> {
    return this.newest.read("now", signal);
  }

  /**
   * Resolves to the first view that the predicate accepts, the present one included.
   *
   * @example
   * await group.when(({ members }) => members.length >= 8, AbortSignal.timeout(30_000));
   *
   * @throws RpcError `cancelled` when `signal` aborts or the group is closed before; what the predicate throws
   */
  when(accepts: (view: View) => boolean, signal?: AbortSignal): Promise<View> {
    return firstView(this.views(signal), accepts, this.name, signal);
  }

  /** @internal */
  abstract on(event: "view", listener: (detail: { readonly view: View }) => void): () => void;

  /**
   * A client of the service's collectives, which all members execute.
   *
   * @example
   * const { value, failed } = await group.all(Store).usage({ pool: "a" }, { onFailure: "partial" });
   *
   * @throws TypeError for a service without collectives
   */
  all<S extends AnyService>(service: S): CollectiveClient<S> {
    return this.#collectives.all(service);
  }

  /** Counters of the collectives, those of barriers and exchanges included. Plain data. */
  collectiveStats(): CollectiveStats {
    return this.#collectives.stats();
  }

  /**
   * Resolves when all members have called it with this name.
   *
   * @throws TypeError or RangeError for bad options. RpcError: `aborted` when a member died or the member with the lowest
   * rank was lost; `deadline_exceeded` when not all came in time; `cancelled` for the signal; `failed_precondition` when
   * this process waits there already, is no member, or others do something else there.
   *
   * @example
   * await group.barrier("loaded", { timeoutMs: 30_000 });
   */
  barrier(name: string, options?: ExchangeOptions): Promise<void> {
    return this.#exchanges.barrier(name, options);
  }

  /** Brings the values of all members to the one with the lowest rank. The others get undefined. @throws as `barrier` */
  gather<T>(name: string, value: T, options?: ExchangeOptions): Promise<ReadonlyMap<number, T> | undefined> {
    return this.#exchanges.gather(name, value, options);
  }

  /** Brings the values of all members to all members, by rank, ascending. @throws as `barrier` */
  allGather<T>(name: string, value: T, options?: ExchangeOptions): Promise<ReadonlyMap<number, T>> {
    return this.#exchanges.allGather(name, value, options);
  }

  /** As `allReduce`, for the member with the lowest rank. The others get undefined. @throws as `allReduce` */
  reduce<T>(
    name: string,
    value: T,
    reduce: (one: T, other: T) => T,
    options?: ExchangeOptions,
  ): Promise<T | undefined> {
    return this.#exchanges.reduce(name, value, reduce, options);
  }

  /**
   * Makes one value of those of all members, and gives it to all. One member reduces, in the order of ranks: the result
   * is the same everywhere, bit by bit, and `reduce` needs to be associative only. All values pass through that member;
   * for large ones a `collective` reduces on the way.
   *
   * @throws as `barrier`, and `internal` when `reduce` throws
   */
  allReduce<T>(
    name: string,
    value: T,
    reduce: (one: T, other: T) => T,
    options?: ExchangeOptions,
  ): Promise<T> {
    return this.#exchanges.allReduce(name, value, reduce, options);
  }

  /** Gives all members the value of the one with the lowest rank. What the others pass is not used. @throws as `barrier` */
  broadcast<T>(name: string, value?: T, options?: ExchangeOptions): Promise<T> {
    return this.#exchanges.broadcast(name, value, options);
  }

  /**
   * Gives each member a value of the one with the lowest rank, which passes a function of the rank. What the others pass
   * is not used.
   *
   * @throws as `barrier`, and `internal` when the function throws
   */
  scatter<T>(name: string, valueFor?: (rank: number) => T, options?: ExchangeOptions): Promise<T> {
    return this.#exchanges.scatter(name, valueFor, options);
  }

  /** @internal Ends what members do together. The views end with `error`, where there is one. */
  protected end(error?: unknown): void {
    for (const each of this.#opened) each[Symbol.dispose]();
    this.#collectives.close();
    this.newest.end(error);
  }
}

/**
 * The first of these views that the predicate accepts.
 *
 * @throws RpcError `cancelled` when they end before: `signal` aborted, or the group was closed
 */
async function firstView(
  views: AsyncIterable<View>,
  accepts: (view: View) => boolean,
  group: string,
  signal?: AbortSignal,
): Promise<View> {
  for await (const view of views) if (accepts(view)) return view;
  const why = signal?.aborted === true ? "the signal aborted" : "it was closed";
  throw new RpcError({
    code: "cancelled",
    message: `group "${group}": ${why} before a view was accepted`,
    ...(signal?.aborted === true && { cause: signal.reason }),
  });
}
