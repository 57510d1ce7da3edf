import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { type FieldsOf, instance, milliseconds, oneOf, resolveOptions } from "cinnabar/options";
import { RpcError } from "cinnabar/standard";
import type { Collectives } from "../collective/collectives.ts";
import { failureOf } from "../collective/failure.ts";
import { type GroupImplementation, implementCollectives } from "../collective/handlers.ts";
import { type Members, removalOf } from "../collective/members.ts";
import { treeField } from "../collective/options.ts";
import type { RankFailure } from "../collective/result.ts";
import type { TreeShape } from "../collective/tree.ts";
import { byRank, isSameMember } from "../view/view.ts";
import {
  Arrivals,
  type Collect,
  type Contribution,
  type ExchangeKind,
  ExchangeService,
  longestName,
  type Outcome,
  type Release,
  type Waiter,
} from "./arrivals.ts";

/** The options of a barrier and of exchanges. */
export interface ExchangeOptions {
  /**
   * What happens when a member dies before all have come. "break": all others fail with `aborted`. "shrink": they go on
   * without it. Default "break".
   */
  readonly onDeath?: "break" | "shrink" | undefined;
  /** How long this member waits for the others, in milliseconds. Default 60,000. */
  readonly timeoutMs?: number | undefined;
  /**
   * The shape of the tree, as collectives have it. That of the member with the lowest rank counts. Default "auto".
   */
  readonly tree?: TreeShape | "auto" | undefined;
  /** Combines up waiting. This member counts as one that has come, where that is known already. */
  readonly signal?: AbortSignal | undefined;
}

const fields = {
  onDeath: oneOf(["break", "shrink"], "break"),
  timeoutMs: milliseconds({ fallback: 60_000 }),
  tree: treeField,
  signal: instance(AbortSignal),
} satisfies FieldsOf<ExchangeOptions>;

/** The share of the time that is kept for letting all members go on. */
const shareOfRelease = 0.1;
/** Pauses between questions to members that are there and not ready. */
const firstPauseMs = 20;
const longestPauseMs = 500;

/** What a member serves for barriers and exchanges. */
export interface ExchangeImplementation extends GroupImplementation {
  /** @internal What waits, by the name of the group. */
  readonly arrivals: (group: string) => Arrivals;
}

const gaveUp = { code: "cancelled", message: "this process gave up" } as const;
const outside = { code: "failed_precondition", message: "this process is no member" } as const;
const late = { code: "deadline_exceeded", message: "not all members came in time" } as const;

/** Makes what a member serves for barriers and exchanges. One serves any number of groups. */
export function implementExchanges(): ExchangeImplementation {
  const groups = new Map<string, Arrivals>();
  const implementation = implementCollectives(ExchangeService, {
    collect: (collect, { group, rank, signal }) => arrivalsOf(groups, group).collect(collect, rank, signal),
    release: (release, { group }) => arrivalsOf(groups, group).release(release),
  });
  return Object.freeze({ ...implementation, arrivals: (group: string) => arrivalsOf(groups, group) });
}

function arrivalsOf(groups: Map<string, Arrivals>, group: string): Arrivals {
  let arrivals = groups.get(group);
  if (arrivals === undefined) {
    arrivals = new Arrivals();
    groups.set(group, arrivals);
  }
  return arrivals;
}

/** What members get: all the same, or each rank its own. */
type Results = { readonly all: unknown } | { readonly of: (rank: number) => unknown };
/** Makes the results of all members' values, by rank, ascending. It runs at the leader. */
type Combine = (values: ReadonlyMap<number, unknown>) => Results;

/**
 * Barriers and exchanges of values among all members of a group. All members call the same method with the same name.
 * No member goes on before all have come. The member with the lowest rank of its view leads. When the leader dies, the
 * exchange breaks for all.
 */
export class Exchanges {
  readonly #collectives: Collectives;
  readonly #members: Members;
  readonly #arrivals: Arrivals;

  constructor(collectives: Collectives, arrivals: Arrivals) {
    this.#collectives = collectives;
    this.#members = collectives.members;
    this.#arrivals = arrivals;
  }

  /**
   * Resolves when all members have called it with this name.
   *
   * @throws TypeError or RangeError for bad options. RpcError: `aborted` when a member died or the leader was lost;
   * `deadline_exceeded` when not all came in time; `cancelled` for the signal; `failed_precondition` when this process
   * waits there already, is no member, or others do something else there.
   *
   * @example
   * await group.barrier("loaded", { timeoutMs: 30_000 });
   */
  async barrier(name: string, options: ExchangeOptions = {}): Promise<void> {
    await this.#exchange("barrier", name, undefined, () => ({ all: undefined }), options);
  }

  /** Brings the values of all members to the one with the lowest rank. The others get undefined. @throws as `barrier` */
  gather<T>(
    name: string,
    value: T,
    options: ExchangeOptions = {},
  ): Promise<ReadonlyMap<number, T> | undefined> {
    const combine: Combine = (values) => this.#forLowest(values);
    return this.#exchange("gather", name, value, combine, options) as Promise<
      ReadonlyMap<number, T> | undefined
    >;
  }

  /** Brings the values of all members to all members, by rank, ascending. @throws as `barrier` */
  allGather<T>(name: string, value: T, options: ExchangeOptions = {}): Promise<ReadonlyMap<number, T>> {
    return this.#exchange("allGather", name, value, (values) => ({ all: values }), options) as Promise<
      ReadonlyMap<number, T>
    >;
  }

  /** As `allReduce`, for the member with the lowest rank. The others get undefined. @throws as `allReduce` */
  reduce<T>(
    name: string,
    value: T,
    reduce: (one: T, other: T) => T,
    options: ExchangeOptions = {},
  ): Promise<T | undefined> {
    const combine: Combine = (values) => this.#forLowest(reduced(values, reduce));
    return this.#exchange("reduce", name, value, combine, options) as Promise<T | undefined>;
  }

  /**
   * Makes one value of those of all members, and gives it to all. One member reduces, in the order of ranks: the result
   * is the same everywhere, bit by bit, and `reduce` needs to be associative only. All values pass through that member;
   * for large ones a `collective` reduces on the way. @throws as `barrier`, and `internal` when `reduce` throws
   */
  allReduce<T>(
    name: string,
    value: T,
    reduce: (one: T, other: T) => T,
    options: ExchangeOptions = {},
  ): Promise<T> {
    const combine: Combine = (values) => ({ all: reduced(values, reduce) });
    return this.#exchange("allReduce", name, value, combine, options) as Promise<T>;
  }

  /** Gives all members the value of the one with the lowest rank. What the others pass is not used. @throws as `barrier` */
  broadcast<T>(name: string, value?: T, options: ExchangeOptions = {}): Promise<T> {
    const combine: Combine = () => ({ all: value });
    return this.#exchange("broadcast", name, undefined, combine, options) as Promise<T>;
  }

  /**
   * Gives each member a value of the one with the lowest rank, which passes a function of the rank. What the others pass
   * is not used. @throws as `barrier`, and `internal` when the function throws
   */
  scatter<T>(name: string, valueFor?: (rank: number) => T, options: ExchangeOptions = {}): Promise<T> {
    const combine: Combine = () => ({ of: (rank) => valueFor?.(rank) });
    return this.#exchange("scatter", name, undefined, combine, options) as Promise<T>;
  }

  #forLowest(result: unknown): Results {
    const lowest = this.#leader;
    return { of: (rank) => (rank === lowest ? result : undefined) };
  }

  /** The lowest rank of the view. */
  get #leader(): number | undefined {
    return this.#members.view.members[0]?.rank;
  }

  async #exchange(
    kind: ExchangeKind,
    name: string,
    value: unknown,
    combine: Combine,
    options: ExchangeOptions,
  ): Promise<unknown> {
    const { onDeath, timeoutMs, tree, signal } = resolved(name, options);
    const { self } = this.#members;
    const leader = this.#leader;
    if (self === undefined || leader === undefined || removalOf(this.#members) !== undefined)
      throw failed(name, outside);
    if (signal?.aborted) throw failed(name, gaveUp, signal.reason);
    let resolve!: (outcome: Outcome) => void;
    const settled = new Promise<Outcome>((resolved) => {
      resolve = resolved;
    });
    // It leaves at once: the next round of this name must not find it here.
    const settle = (outcome: Outcome): void => {
      this.#arrivals.leave(name, waiter);
      resolve(outcome);
    };
    const waiter: Waiter = { kind, value, round: undefined, settle };
    this.#arrivals.enter(name, waiter);
    const deadlineMs = performance.now() + timeoutMs;
    const end = new AbortController();
    const timer = setTimeout(() => settle({ error: late, result: undefined }), timeoutMs);
    const onAbort = (): void => settle({ error: gaveUp, result: undefined });
    signal?.addEventListener("abort", onAbort, { once: true });
    const present = this.#members.view.members;
    const off = this.#members.on("view", ({ view }) => {
      const living = byRank(view);
      if (!isSameMember(self, living.get(self.rank))) return settle({ error: outside, result: undefined });
      // Only the leader lets this member go on.
      // A successor with the same rank is another member, and does not know this round.
      const gone = present.find(
        (member) =>
          (onDeath === "break" || member.rank === leader) && !isSameMember(member, living.get(member.rank)),
      );
      if (gone === undefined) return;
      settle({ error: { code: "aborted", message: `rank ${gone.rank} left the group` }, result: undefined });
    });
    try {
      if (self.rank === leader) {
        const led = { kind, name, combine, onDeath, deadlineMs, tree, signal: end.signal, rank: leader };
        this.#lead(led).then(settle, (error: unknown) =>
          settle({ error: failureOf(error), result: undefined }),
        );
      }
      const { error, result } = await settled;
      if (error === undefined) return result;
      throw failed(name, error, signal?.reason);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
      off();
      end.abort();
    }
  }

  /**
   * Waits for all members, and releases them, with an error or without. The leader continues last: when it asks for the
   * next round of this name, no member is in this round any more.
   */
  async #lead({
    kind,
    name,
    combine,
    onDeath,
    deadlineMs,
    tree,
    signal,
    rank: leader,
  }: Led): Promise<Outcome> {
    const untilMs = deadlineMs - leftOf(deadlineMs) * shareOfRelease;
    const round = randomBytes(16).toString("hex");
    const { ok, failures, values } = await this.#collect({ name, kind, round }, untilMs, {
      tree,
      signal,
    }).catch(async (thrown: unknown) => {
      await this.#combineUp(name, round, failureOf(thrown));
      throw thrown;
    });
    const breaking = failures.find(([, { code }]) => onDeath === "break" || code !== "unavailable");
    let error = breaking && breakOf(breaking);
    let results: Results = { all: undefined };
    if (error === undefined) {
      try {
        results = evaluated(combine(new Map([...values].sort(([one], [other]) => one - other))), ok);
      } catch (thrown) {
        error = { code: "internal", message: `${kind} threw: ${String(thrown)}` };
      }
    }
    const others = ok.filter((rank) => rank !== leader);
    const timeoutMs = leftOf(deadlineMs);
    const options = { include: others, view: "root", onFailure: "partial", tree, timeoutMs } as const;
    const resultOf = (rank: number): unknown => ("of" in results ? results.of(rank) : results.all);
    const release = (rank: number): Release => ({ name, round, error, result: resultOf(rank) });
    const outcome = { error, result: resultOf(leader) };
    if (others.length === 0) return outcome;
    const released =
      "of" in results
        ? this.#collectives.scatter(ExchangeService, "release", release, options)
        : this.#collectives.all(ExchangeService).release(release(leader), options);
    // Members that cannot be reached find out by themselves that the round has ended.
    await released.catch(() => undefined);
    return outcome;
  }

  /** The leader combines up, or cannot lead: releases the members that it has counted with this error. */
  async #combineUp(
    name: string,
    round: string,
    { code, message }: NonNullable<Release["error"]>,
  ): Promise<void> {
    const error = { code: code === "cancelled" ? "aborted" : code, message } as const;
    const options = { view: "root", onFailure: "partial" } as const;
    const { release } = this.#collectives.all(ExchangeService);
    await release({ name, round, error, result: undefined }, options).catch(() => undefined);
  }

  /** The members that have come, when no other is waited for. Asks again while some are there and have not joined. */
  async #collect(
    input: Collect,
    untilMs: number,
    { tree, signal }: Pick<Led, "tree" | "signal">,
  ): Promise<Collected> {
    const { collect } = this.#collectives.all(ExchangeService);
    for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(2 * pauseMs, longestPauseMs)) {
      const timeoutMs = leftOf(untilMs);
      const options = { view: "root", onFailure: "partial", tree, timeoutMs, signal } as const;
      const { ok, failed, value } = await collect(input, options);
      const failures = [...failed];
      if (!failures.some(isNotReady) || leftOf(untilMs) <= pauseMs)
        return { ok, failures, values: value.brought };
      await delay(pauseMs, undefined, { signal });
    }
  }
}

const reduced = <T>(values: ReadonlyMap<number, unknown>, reduce: (one: T, other: T) => T): T =>
  [...(values as ReadonlyMap<number, T>).values()].reduce((one, other) => reduce(one, other));

/** A round as its leader knows it. */
interface Led {
  readonly kind: ExchangeKind;
  readonly name: string;
  readonly combine: Combine;
  readonly onDeath: "break" | "shrink";
  readonly deadlineMs: number;
  readonly tree: TreeShape | "auto";
  readonly signal: AbortSignal;
  /** This process. */
  readonly rank: number;
}

interface Collected {
  readonly ok: readonly number[];
  readonly failures: readonly (readonly [number, RankFailure])[];
  readonly values: readonly Contribution[];
}

/** The results of all ranks: a function that throws does so before any member is released. */
function evaluated(results: Results, ranks: readonly number[]): Results {
  if (!("of" in results)) return results;
  const made = new Map(ranks.map((rank) => [rank, results.of(rank)]));
  return { of: (rank) => made.get(rank) };
}

const leftOf = (untilMs: number): number => Math.max(1, untilMs - performance.now());

/** The member has not joined yet: its engine does not serve the group yet. Asking again is safe. */
const isNotReady = ([, { code, executed, retryable }]: readonly [number, RankFailure]): boolean =>
  code === "unimplemented" || (code === "failed_precondition" && executed !== "yes" && retryable);

function breakOf([rank, { code, message }]: readonly [number, RankFailure]): NonNullable<Release["error"]> {
  if (code === "deadline_exceeded") return { code, message: `rank ${rank} did not come in time` };
  // Others do something else there: for people to mend.
  if (code === "failed_precondition") return { code, message };
  return { code: "aborted", message: `rank ${rank} was lost: ${message}` };
}

/** The options with defaults. @throws TypeError or RangeError that names the option */
function resolved(name: string, options: ExchangeOptions) {
  if (typeof name !== "string" || name === "" || name.length > longestName)
    throw new TypeError(`exchange: the name has 1 to ${longestName} characters`);
  return resolveOptions("exchange", options, fields);
}

/** Why an exchange failed, with its name. */
function failed(name: string, { code, message }: NonNullable<Release["error"]>, cause?: unknown): RpcError {
  const text = `exchange "${name}": ${message}`;
  return new RpcError({
    code,
    message: text,
    retryable: code === "aborted",
    ...(cause !== undefined && { cause }),
  });
}
