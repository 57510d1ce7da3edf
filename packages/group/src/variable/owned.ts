import { setTimeout as pause } from "node:timers/promises";
import { RpcError } from "cinnabar/standard";
import type { Collectives } from "../collective/collectives.ts";
import { isSameMember } from "../view/view.ts";
import type { Copies } from "./copies.ts";
import { isLater, isNotReady, leftOf, missing, resultOf, Spreading } from "./spreading.ts";
import { type Change, type Copy, type OwnerAnswer, VariableService } from "./variable-service.ts";

/**
 * Versions of one term begin here times the term. So two owners never give one version to different values, unless one
 * of them has made as many changes.
 */
const versionsOfTerm = 1_000_000;
/** Pauses between tries to reach members that are in the view and do not answer. */
const firstPauseMs = 20;
const longestPauseMs = 500;
/** How long one try waits for members, in milliseconds. */
const tryMs = 2000;

/** A variable as this process has opened it: `initial` makes the value when no member knows one. */
export interface Opened {
  readonly initial: (() => unknown) | undefined;
}

/**
 * One variable at the member with the lowest rank, which owns it. Each owner takes over once: it learns the newest version
 * that any member of its view knows, and makes all of them refuse former owners. Changes are made one after the other.
 */
export class Owned {
  readonly #name: string;
  readonly #collectives: Collectives;
  readonly #copies: Copies;
  readonly #opened: () => Opened | undefined;
  readonly #spreading: Spreading;
  /** The version of the view in which this process took over; undefined before, and when it was followed. */
  #term: number | undefined;
  /** What is done with the variable, one after the other. */
  #turn: Promise<unknown> = Promise.resolve();

  /** `end` ends what is done in the background. */
  constructor(
    name: string,
    collectives: Collectives,
    copies: Copies,
    opened: () => Opened | undefined,
    end: AbortSignal,
  ) {
    this.#name = name;
    this.#collectives = collectives;
    this.#copies = copies;
    this.#opened = opened;
    this.#spreading = new Spreading(name, collectives, copies, () => this.#resign(), end);
  }

  /** The newest version, with a value where any is known or there is an initial one. */
  fetch(signal: AbortSignal, timeLeftMs: number): Promise<OwnerAnswer> {
    return this.#inTurn(signal, timeLeftMs, async () => {
      if (this.#copy.hasValue) return { state: "done", ...this.#copy };
      const opened = this.#opened();
      // Soon it will be: the asking process has opened it already.
      if (opened === undefined) return { state: "elsewhere", ...this.#copy };
      if (opened.initial !== undefined) {
        const value = await opened.initial();
        if (this.#term === undefined) return { state: "elsewhere", ...this.#copy };
        this.#advance(this.#term, true, value);
      }
      return { state: "done", ...this.#copy };
    });
  }

  async change(change: Change, signal: AbortSignal, timeLeftMs: number): Promise<OwnerAnswer> {
    let reached: Promise<void> | undefined;
    const answer = await this.#inTurn(signal, timeLeftMs, async () => {
      if (change.ifVersion !== undefined && change.ifVersion !== this.#copy.version)
        return { state: "conflict", ...this.#copy };
      if (this.#term === undefined) return { state: "elsewhere", ...this.#copy };
      this.#advance(this.#term, change.hasValue, change.value);
      if (change.sync) reached = this.#spreading.reached(this.#copy.version, signal);
      return { state: "done", ...this.#copy };
    });
    await reached;
    return answer;
  }

  /** Before it changes anything else it must take over again, which its former members refuse. */
  #resign(): void {
    this.#term = undefined;
  }

  get #copy(): Copy {
    return this.#copies.of(this.#name).newest.value;
  }

  /** Another version, which all members get. */
  #advance(term: number, hasValue: boolean, value: unknown): void {
    const version = Math.max(this.#copy.version + 1, term * versionsOfTerm);
    this.#copies.put({ name: this.#name, term, version, hasValue, value });
    this.#spreading.begin(term);
  }

  /** As the owner, after what came before. `elsewhere` when this process does not own the variable. */
  #inTurn(signal: AbortSignal, timeLeftMs: number, work: () => Promise<OwnerAnswer>): Promise<OwnerAnswer> {
    const untilMs = performance.now() + timeLeftMs;
    const turn = this.#turn.then(async (): Promise<OwnerAnswer> => {
      signal.throwIfAborted();
      if (!(await this.#lead(untilMs, signal))) return { state: "elsewhere", ...this.#copy };
      return work();
    });
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  /** Whether this process is the owner, in the present view. */
  async #lead(untilMs: number, signal: AbortSignal): Promise<boolean> {
    if (!this.#isFirst) return false;
    const { view } = this.#collectives.members;
    const known = this.#copies.of(this.#name);
    if (this.#term !== undefined && known.term <= this.#term) return true;
    const term = view.version;
    if (term < known.term) return false;
    const input = { name: this.#name, term };
    const { takeOver } = this.#collectives.all(VariableService);
    for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(2 * pauseMs, longestPauseMs)) {
      const timeoutMs = Math.min(leftOf(untilMs), tryMs);
      const options = { view: "root", onFailure: "partial", timeoutMs, signal } as const;
      const { value, failed } = await takeOver(input, options).catch(resultOf);
      if (value !== undefined) this.#copies.keep(this.#name, value as Copy);
      if ([...failed.values()].some(isLater)) return false;
      // A member that serves no variables has no copy.
      const silent = missing(failed, this.#collectives.members.view).filter(
        (rank) => !isNotReady(failed.get(rank)),
      );
      if (silent.length === 0) break;
      await this.#pauseFor(silent, pauseMs, untilMs, signal);
      // It may have been removed meanwhile: then the others do not wait for its tries to end.
      if (!this.#isFirst) return false;
    }
    this.#term = term;
    return true;
  }

  /** Whether the newest view has this process as the first one. */
  get #isFirst(): boolean {
    const { self, view } = this.#collectives.members;
    const [first] = view.members;
    return self !== undefined && isSameMember(self, first);
  }

  async #pauseFor(
    ranks: readonly number[],
    pauseMs: number,
    untilMs: number,
    signal: AbortSignal,
  ): Promise<void> {
    if (leftOf(untilMs) <= pauseMs)
      throw new RpcError({
        code: "deadline_exceeded",
        message: `variable "${this.#name}": no answer came in time from ranks ${ranks.join(", ")}`,
      });
    await pause(pauseMs, undefined, { signal });
  }
}
