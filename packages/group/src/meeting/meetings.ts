import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { RpcError } from "cinnabar/standard";
import type { Collectives } from "../collective/collectives.ts";
import { failureOf } from "../collective/failure.ts";
import { type GroupImplementation, implementCollectives } from "../collective/handlers.ts";
import { type Members, removalOf } from "../collective/members.ts";
import { assertTree } from "../collective/options.ts";
import type { RankFailure } from "../collective/result.ts";
import type { TreeShape } from "../tree/shape.ts";
import { byRank, isSameMember } from "../view/view.ts";
import {
  type Collect,
  type Contribution,
  longestName,
  type MeetingKind,
  MeetingService,
  type Release,
} from "./meeting-service.ts";
import { type Outcome, type Waiter, Waiting } from "./waiting.ts";

/** The options of a barrier and its kin. */
export interface MeetingOptions {
  /**
   * What happens when a member dies before all have come. "break": all others fail with `aborted`. "shrink": they go on
   * without it. Default "break".
   */
  readonly onDeath?: "break" | "shrink";
  /** How long this member waits for the others, in milliseconds. Default 60,000. */
  readonly timeoutMs?: number;
  /**
   * The shape of the tree, as collectives have it. That of the member with the lowest rank counts. Default "auto".
   */
  readonly tree?: TreeShape | "auto";
  /** Gives up waiting. This member counts as one that has come, where that is known already. */
  readonly signal?: AbortSignal;
}

const known = ["onDeath", "timeoutMs", "tree", "signal"];
const defaultTimeoutMs = 60_000;
const longestMs = 2_147_483_647;
/** The share of the time that is kept for letting all members go on. */
const shareOfRelease = 0.1;
/** Pauses between questions to members that are there and not ready. */
const firstPauseMs = 20;
const longestPauseMs = 500;

/** The implementation of meetings, for `Engine.open({ serve })` and `openCollectives`. */
export interface MeetingImplementation extends GroupImplementation {
  /** @internal Who waits, by the name of the group. */
  readonly waiting: Map<string, Waiting>;
}

const gaveUp = { code: "cancelled", message: "this process gave up" } as const;
const outside = { code: "failed_precondition", message: "this process is no member" } as const;
const late = { code: "deadline_exceeded", message: "not all members came in time" } as const;

/** Makes what a member serves for barriers and their kin. */
export function implementMeetings(): MeetingImplementation {
  const waiting = new Map<string, Waiting>();
  const implementation = implementCollectives(MeetingService, {
    collect: (collect, { group, rank, signal }) => waitingOf(waiting, group).collect(collect, rank, signal),
    release: (release, { group }) => waitingOf(waiting, group).release(release),
  });
  return Object.freeze({ ...implementation, waiting });
}

function waitingOf(groups: Map<string, Waiting>, group: string): Waiting {
  let waiting = groups.get(group);
  if (waiting === undefined) {
    waiting = new Waiting();
    groups.set(group, waiting);
  }
  return waiting;
}

/**
 * Barriers and exchanges of values among all members of a group. `implementation` must be among what `collectives`
 * serves.
 *
 * @example
 * const meetings = implementMeetings();
 * const engine = await Engine.open({ listen, serve: [store, meetings] });
 * const group = await joinGroup("store", { engine, authority });
 * const collectives = openCollectives(group, { serve: [store, meetings] });
 * const meeting = openMeetings(collectives, meetings);
 * await meeting.barrier("ready");
 */
export function openMeetings(collectives: Collectives, implementation: MeetingImplementation): Meetings {
  return new Meetings(collectives, waitingOf(implementation.waiting, collectives.members.name));
}

/** What a meeting gives to its members: the same to all, or to each rank its own. */
type Gift = { readonly all: unknown } | { readonly of: (rank: number) => unknown };
/** Makes it of what all have brought, by rank, ascending. It runs at the member that leads the meeting. */
type Give = (values: ReadonlyMap<number, unknown>) => Gift;

/**
 * Meetings of all members of a group. All members come to a meeting by the same method and name, and none goes on before
 * all have come. The member with the lowest rank of its view leads it. When that one dies the meeting breaks for all.
 */
export class Meetings {
  readonly #collectives: Collectives;
  readonly #members: Members;
  readonly #waiting: Waiting;

  /** @internal Made by `openMeetings`. */
  constructor(collectives: Collectives, waiting: Waiting) {
    this.#collectives = collectives;
    this.#members = collectives.members;
    this.#waiting = waiting;
  }

  /**
   * Resolves when all members have called it with this name.
   *
   * @throws TypeError or RangeError for bad options. RpcError: `aborted` when a member died or the leader was lost;
   * `deadline_exceeded` when not all came in time; `cancelled` for the signal; `failed_precondition` when this process
   * waits there already, is no member, or others do something else there.
   *
   * @example
   * await meeting.barrier("loaded", { timeoutMs: 30_000 });
   */
  async barrier(name: string, options: MeetingOptions = {}): Promise<void> {
    await this.#meet("barrier", name, undefined, () => ({ all: undefined }), options);
  }

  /** Brings the values of all members to the one with the lowest rank. The others get undefined. @throws as `barrier` */
  gather<T>(
    name: string,
    value: T,
    options: MeetingOptions = {},
  ): Promise<ReadonlyMap<number, T> | undefined> {
    const lowest = this.#leader;
    const give: Give = (values) => ({ of: (rank) => (rank === lowest ? values : undefined) });
    return this.#meet("gather", name, value, give, options) as Promise<ReadonlyMap<number, T> | undefined>;
  }

  /** Brings the values of all members to all members, by rank, ascending. @throws as `barrier` */
  allGather<T>(name: string, value: T, options: MeetingOptions = {}): Promise<ReadonlyMap<number, T>> {
    return this.#meet("allGather", name, value, (values) => ({ all: values }), options) as Promise<
      ReadonlyMap<number, T>
    >;
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
    options: MeetingOptions = {},
  ): Promise<T> {
    const give: Give = (values) => {
      const result = [...(values as ReadonlyMap<number, T>).values()].reduce((one, other) =>
        reduce(one, other),
      );
      return { all: result };
    };
    return this.#meet("allReduce", name, value, give, options) as Promise<T>;
  }

  /**
   * Gives each member a value of the one with the lowest rank, which passes a function of the rank. What the others pass
   * is not used. @throws as `barrier`, and `internal` when the function throws
   */
  scatter<T>(name: string, valueFor?: (rank: number) => T, options: MeetingOptions = {}): Promise<T> {
    const give: Give = () => ({ of: (rank) => valueFor?.(rank) });
    return this.#meet("scatter", name, undefined, give, options) as Promise<T>;
  }

  /** The lowest rank of the view. */
  get #leader(): number | undefined {
    return this.#members.view.members[0]?.rank;
  }

  async #meet(
    kind: MeetingKind,
    name: string,
    value: unknown,
    give: Give,
    options: MeetingOptions,
  ): Promise<unknown> {
    const { onDeath, timeoutMs, tree, signal } = checked(name, options);
    const { self } = this.#members;
    const leader = this.#leader;
    if (self === undefined || leader === undefined || removalOf(this.#members) !== undefined)
      throw failed(name, outside);
    if (signal?.aborted) throw failed(name, gaveUp, signal.reason);
    let resolve!: (outcome: Outcome) => void;
    const settled = new Promise<Outcome>((resolved) => {
      resolve = resolved;
    });
    // It leaves at once: the question of the next meeting of this name must not find it here.
    const settle = (outcome: Outcome): void => {
      this.#waiting.leave(name, waiter);
      resolve(outcome);
    };
    const waiter: Waiter = { kind, value, meeting: undefined, settle };
    this.#waiting.enter(name, waiter);
    const deadlineMs = performance.now() + timeoutMs;
    const end = new AbortController();
    const timer = setTimeout(() => settle({ error: late, result: undefined }), timeoutMs);
    const onAbort = (): void => settle({ error: gaveUp, result: undefined });
    signal?.addEventListener("abort", onAbort, { once: true });
    const present = this.#members.view.members;
    const off = this.#members.on("view", ({ view }) => {
      const living = byRank(view);
      if (!isSameMember(self, living.get(self.rank))) return settle({ error: outside, result: undefined });
      // Without the leader nobody lets this member go.
      // A successor with the same rank is another member, and knows nothing of this meeting.
      const gone = present.find(
        (member) =>
          (onDeath === "break" || member.rank === leader) && !isSameMember(member, living.get(member.rank)),
      );
      if (gone === undefined) return;
      settle({ error: { code: "aborted", message: `rank ${gone.rank} left the group` }, result: undefined });
    });
    try {
      if (self.rank === leader) {
        const led = { kind, name, give, onDeath, deadlineMs, tree, signal: end.signal, rank: leader };
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
   * Waits for all members, and lets them go on or tells them why not. The leader goes on last: when it asks for the next
   * meeting of this name, nobody is in this one any more.
   */
  async #lead({ kind, name, give, onDeath, deadlineMs, tree, signal, rank: leader }: Led): Promise<Outcome> {
    const untilMs = deadlineMs - leftOf(deadlineMs) * shareOfRelease;
    const meeting = randomBytes(16).toString("hex");
    const { ok, failures, values } = await this.#collect({ name, kind, meeting }, untilMs, {
      tree,
      signal,
    }).catch(async (thrown: unknown) => {
      await this.#giveUp(name, meeting, failureOf(thrown));
      throw thrown;
    });
    const breaking = failures.find(([, { code }]) => onDeath === "break" || code !== "unavailable");
    let error = breaking && breakOf(breaking);
    let gift: Gift = { all: undefined };
    if (error === undefined) {
      try {
        gift = evaluated(give(new Map([...values].sort(([one], [other]) => one - other))), ok);
      } catch (thrown) {
        error = { code: "internal", message: `${kind} threw: ${String(thrown)}` };
      }
    }
    const others = ok.filter((rank) => rank !== leader);
    const timeoutMs = leftOf(deadlineMs);
    const options = { include: others, view: "root", onFailure: "partial", tree, timeoutMs } as const;
    const resultOf = (rank: number): unknown => ("of" in gift ? gift.of(rank) : gift.all);
    const release = (rank: number): Release => ({ name, meeting, error, result: resultOf(rank) });
    const outcome = { error, result: resultOf(leader) };
    if (others.length === 0) return outcome;
    const released =
      "of" in gift
        ? this.#collectives.scatter(MeetingService, "release", release, options)
        : this.#collectives.all(MeetingService).release(release(leader), options);
    // Whoever cannot be reached finds out by itself that the meeting has ended.
    await released.catch(() => undefined);
    return outcome;
  }

  /** The leader gives up, or cannot lead: those that it has counted wait in vain. */
  async #giveUp(
    name: string,
    meeting: string,
    { code, message }: NonNullable<Release["error"]>,
  ): Promise<void> {
    const error = { code: code === "cancelled" ? "aborted" : code, message } as const;
    const options = { view: "root", onFailure: "partial" } as const;
    const { release } = this.#collectives.all(MeetingService);
    await release({ name, meeting, error, result: undefined }, options).catch(() => undefined);
  }

  /** Who has come when nobody is left to wait for. Asks again while members are there and have not opened meetings. */
  async #collect(
    input: Collect,
    untilMs: number,
    { tree, signal }: Pick<Led, "tree" | "signal">,
  ): Promise<Collected> {
    const { collect } = this.#collectives.all(MeetingService);
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

/** A meeting as its leader knows it. */
interface Led {
  readonly kind: MeetingKind;
  readonly name: string;
  readonly give: Give;
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

/** With the results of all ranks: a function that throws does so before anybody is let go. */
function evaluated(gift: Gift, ranks: readonly number[]): Gift {
  if (!("of" in gift)) return gift;
  const results = new Map(ranks.map((rank) => [rank, gift.of(rank)]));
  return { of: (rank) => results.get(rank) };
}

const leftOf = (untilMs: number): number => Math.max(1, untilMs - performance.now());

const isNotReady = ([, { code, executed, retryable }]: readonly [number, RankFailure]): boolean =>
  code === "failed_precondition" && executed !== "yes" && retryable;

function breakOf([rank, { code, message }]: readonly [number, RankFailure]): NonNullable<Release["error"]> {
  if (code === "deadline_exceeded") return { code, message: `rank ${rank} did not come in time` };
  // Others do something else there: for people to mend.
  if (code === "failed_precondition") return { code, message };
  return { code: "aborted", message: `rank ${rank} was lost: ${message}` };
}

/** The options with defaults. @throws TypeError or RangeError that names the option */
function checked(name: string, options: MeetingOptions) {
  const unknown = Object.keys(options).find((option) => !known.includes(option));
  if (unknown !== undefined)
    throw new TypeError(`meeting: unknown option "${unknown}"; known are ${known.join(", ")}`);
  if (typeof name !== "string" || name === "" || name.length > longestName)
    throw new TypeError(`meeting: the name of a meeting has 1 to ${longestName} characters`);
  const { onDeath = "break", timeoutMs = defaultTimeoutMs, tree = "auto", signal } = options;
  if (onDeath !== "break" && onDeath !== "shrink")
    throw new TypeError(`meeting: onDeath must be "break" or "shrink", it is ${String(onDeath)}`);
  if (!(timeoutMs > 0 && timeoutMs <= longestMs))
    throw new RangeError(
      `meeting: timeoutMs must be a number of milliseconds above 0, at most ${longestMs}, it is ${timeoutMs}`,
    );
  if (tree !== "auto") assertTree("meeting: tree", tree);
  return { onDeath, timeoutMs, tree, signal };
}

/** Why a meeting failed, with its name. */
function failed(name: string, { code, message }: NonNullable<Release["error"]>, cause?: unknown): RpcError {
  const text = `meeting "${name}": ${message}`;
  return new RpcError({
    code,
    message: text,
    retryable: code === "aborted",
    ...(cause !== undefined && { cause }),
  });
}
