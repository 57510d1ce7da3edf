import { setTimeout as pause } from "node:timers/promises";
import { RpcError } from "cinnabar/standard";
import type { Collectives } from "../collective/collectives.ts";
import { CollectiveError, type CollectiveResult, type RankFailure } from "../collective/result.ts";
import { byRank, type Member, type View } from "../view/view.ts";
import type { Copies } from "./copies.ts";
import { type Copy, VariableService } from "./variable-service.ts";

/** What became of a call that failed at all members; other errors are thrown. */
export function resultOf(error: unknown): CollectiveResult<unknown> {
  if (error instanceof CollectiveError) return error.result;
  throw error;
}

/** The member obeys a later owner. A call that broke on its way is not marked as executed. */
export const isLater = ({ code, executed }: RankFailure): boolean => code === "aborted" && executed === "yes";

/** The process is there and has not joined yet. */
export const isNotReady = (failure: RankFailure | undefined): boolean =>
  failure?.code === "unimplemented" ||
  (failure?.code === "failed_precondition" && failure.executed === "no" && failure.retryable);

/** Those that failed and are in the view still. */
export function missing(failed: ReadonlyMap<number, RankFailure>, view: View): number[] {
  const living = byRank(view);
  return [...failed.keys()].filter((rank) => living.has(rank));
}

/** Milliseconds until then on `performance.now()`'s clock, at least one. */
export const leftOf = (untilMs: number): number => Math.max(1, untilMs - performance.now());

/** What the work gives, or the reason of the signal once that aborts. The work then goes on, unused. */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}

/** How long the members that answer promptly are waited for together, in milliseconds: so long, and so long for each. */
const patienceMs = 100;
const patienceOfMemberMs = 1;
/** How long one try waits for a member that is served alone, in milliseconds. */
const aloneMs = 2000;
/** How long members that do not answer are tried after the last change, in milliseconds. */
const offeredMs = 60_000;
const pauseMs = 50;

interface Waiter {
  readonly version: number;
  resolve(): void;
  reject(error: unknown): void;
}

/**
 * Gives the newest version of one variable to all members. Prompt members get it together, by one collective. Each slow
 * member gets it alone, so that it delays no other member. No member is sent two versions at once. Changes that come
 * meanwhile go together with the next one: members may miss versions between.
 */
export class Spreading {
  readonly #name: string;
  readonly #collectives: Collectives;
  readonly #copies: Copies;
  readonly #onFollowed: () => void;
  readonly #end: AbortSignal;
  readonly #waiters = new Set<Waiter>();
  /** The version that a process is known to have, by its rank and incarnation. */
  readonly #has = new Map<string, number>();
  /** Members that have not answered in time lately. */
  readonly #slow = new Set<string>();
  /** The slow members that a call is on its way to. */
  readonly #served = new Set<string>();
  #term = 0;
  #untilMs = 0;
  #isRunning = false;

  /** `onFollowed`: another member has taken over, which the members obey. */
  constructor(
    name: string,
    collectives: Collectives,
    copies: Copies,
    onFollowed: () => void,
    end: AbortSignal,
  ) {
    this.#name = name;
    this.#collectives = collectives;
    this.#copies = copies;
    this.#onFollowed = onFollowed;
    this.#end = end;
  }

  /** There is another version, of the owner with this term. */
  begin(term: number): void {
    if (term !== this.#term) this.#has.clear();
    this.#term = term;
    this.#untilMs = performance.now() + offeredMs;
    this.#goOn();
  }

  /**
   * Resolves when all members of the view have this version or a later one. It must have begun in this turn.
   *
   * @throws RpcError `aborted` when another member has taken over, `deadline_exceeded` when members do not answer; the
   * reason of the signal
   */
  async reached(version: number, signal: AbortSignal): Promise<void> {
    if (this.#lacking(version).length === 0) return;
    let waiter: Waiter | undefined;
    const settled = new Promise<void>((resolve, reject) => {
      waiter = { version, resolve, reject };
      this.#waiters.add(waiter);
    });
    await unlessAborted(settled, signal).finally(() => this.#waiters.delete(waiter as Waiter));
  }

  /** Serves those that answer promptly, until all of them have the newest version. */
  async #run(): Promise<void> {
    this.#isRunning = true;
    try {
      for (;;) {
        const copy = this.#newest;
        const lacking = this.#lacking(copy.version);
        this.#forgetTheGone();
        const alone = lacking.filter((member) => this.#isAlone(nameOf(member)));
        const prompt = lacking.filter((member) => !this.#isAlone(nameOf(member)));
        for (const member of alone) void this.#serve(member);
        if (prompt.length === 0) break;
        const failed = await this.#give(copy, prompt, this.#patienceMs);
        for (const member of prompt) if (failed.has(member.rank)) this.#slow.add(nameOf(member));
      }
      this.#settle();
    } catch (error) {
      this.#fail(error);
    } finally {
      this.#isRunning = false;
    }
  }

  /**
   * Serves a member that has not answered in time, until it has the newest version or no caller waits for it any more.
   */
  async #serve(member: Member): Promise<void> {
    const name = nameOf(member);
    if (this.#served.has(name)) return;
    this.#served.add(name);
    try {
      while (this.#lacking(this.#newest.version).some((each) => nameOf(each) === name)) {
        const beganMs = performance.now();
        const failed = await this.#give(this.#newest, [member], aloneMs);
        if (failed.size === 0) {
          if (performance.now() - beganMs < this.#patienceMs) this.#slow.delete(name);
          continue;
        }
        if (leftOf(this.#untilMs) <= pauseMs) throw this.#late();
        await pause(pauseMs, undefined, { signal: this.#end });
        this.#goOn();
      }
      this.#goOn();
    } catch (error) {
      this.#fail(error);
    } finally {
      this.#served.delete(name);
    }
  }

  /** Begins or goes on: other members may have come meanwhile, who lack the newest version, too. */
  #goOn(): void {
    if (this.#isRunning) return;
    if (performance.now() < this.#untilMs) void this.#run();
    else this.#settle();
  }

  /** A member that has just caught up is served alone until that call has ended. */
  #isAlone(name: string): boolean {
    return this.#slow.has(name) || this.#served.has(name);
  }

  get #patienceMs(): number {
    return patienceMs + patienceOfMemberMs * this.#collectives.members.view.members.length;
  }

  get #newest(): Copy {
    return this.#copies.of(this.#name).newest.value;
  }

  /** Releases the callers that wait for a version that all members have now. */
  #settle(): void {
    for (const { version, resolve } of this.#waiters) if (this.#lacking(version).length === 0) resolve();
  }

  /** Nothing more is sent until the next change. */
  #fail(error: unknown): void {
    this.#untilMs = 0;
    for (const { reject } of this.#waiters) reject(error);
  }

  #forgetTheGone(): void {
    const names = new Set(this.#collectives.members.view.members.map(nameOf));
    for (const name of this.#slow) if (!names.has(name)) this.#slow.delete(name);
    for (const name of this.#has.keys()) if (!names.has(name)) this.#has.delete(name);
  }

  #lacking(version: number): Member[] {
    const { self, view } = this.#collectives.members;
    return view.members.filter(
      (member) => member.rank !== self?.rank && (this.#has.get(nameOf(member)) ?? 0) < version,
    );
  }

  /** The ranks that may not have it, of those that are in the view still. */
  async #give(copy: Copy, to: readonly Member[], timeoutMs: number): Promise<ReadonlySet<number>> {
    const put = { name: this.#name, term: this.#term, ...copy };
    const include = to.map(({ rank }) => rank);
    const signal = this.#end;
    const options = { include, view: "root", onFailure: "partial", timeoutMs, signal } as const;
    const { ok, failed } = await this.#collectives.all(VariableService).put(put, options).catch(resultOf);
    for (const member of to) if (ok.includes(member.rank)) this.#has.set(nameOf(member), copy.version);
    const later = [...failed.values()].find(isLater);
    if (later !== undefined) {
      this.#onFollowed();
      throw new RpcError({ code: "aborted", message: later.message });
    }
    return new Set(missing(failed, this.#collectives.members.view));
  }

  #late(): RpcError {
    const silent = this.#lacking(this.#newest.version).map(({ rank }) => rank);
    return new RpcError({
      code: "deadline_exceeded",
      message: `variable "${this.#name}": no answer came in time from ranks ${silent.join(", ")}`,
    });
  }
}

const nameOf = ({ rank, incarnation }: Member): string => `${rank}/${incarnation}`;
