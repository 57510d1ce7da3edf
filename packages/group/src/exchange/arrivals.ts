import { type RpcCode, RpcError, service } from "cinnabar/standard";
import { messageSchema } from "../collective/message-schema.ts";
import { collective } from "../collective/method.ts";

/** What members do together. */
export type ExchangeKind =
  | "barrier"
  | "gather"
  | "allGather"
  | "reduce"
  | "allReduce"
  | "broadcast"
  | "scatter";

/** A rank and what it brought. */
export type Contribution = readonly [rank: number, value: unknown];

/** The question whether a member has come. */
export interface Collect {
  readonly name: string;
  readonly kind: ExchangeKind;
  /** The id of this round; the leader chooses it. */
  readonly round: string;
}

/** How a round ends for one member. */
export interface Release {
  readonly name: string;
  /** The round that the member was counted for last. */
  readonly round: string;
  readonly error: { readonly code: RpcCode; readonly message: string } | undefined;
  readonly result: unknown;
}

/** The most characters of an exchange's name. */
export const longestName = 128;

const isText = (value: unknown): value is string => typeof value === "string";
const isName = (value: unknown): boolean => isText(value) && value.length >= 1 && value.length <= longestName;

/** The members that have come. */
interface Brought {
  readonly brought: readonly Contribution[];
}

const isContribution = (value: unknown): boolean => Array.isArray(value) && Number.isInteger(value[0]);

/** What the members of a group send each other for barriers and exchanges. */
export const ExchangeService = service("cinnabar.exchanges.v1", {
  /** Answers when the member has come, with what it brought. */
  collect: collective({
    input: messageSchema<Collect>("an exchange", {
      name: isName,
      kind: isText,
      round: isText,
    }),
    output: messageSchema<Brought>("contributions", {
      brought: (value) => Array.isArray(value) && value.every(isContribution),
    }),
    reduce: (some, others) => ({ brought: [...some.brought, ...others.brought] }),
  }),
  /** Lets the member go on. */
  release: collective({
    input: messageSchema<Release>("the end of an exchange", {
      name: isName,
      round: isText,
      error: (value) => value === undefined || (typeof value === "object" && value !== null),
      result: () => true,
    }),
  }),
});

/** How an exchange ended for a member. */
export type Outcome = Pick<Release, "error" | "result">;

/** This member has come to an exchange, and waits for the others. */
export interface Waiter {
  readonly kind: ExchangeKind;
  readonly value: unknown;
  /** The round that it was counted for last. Only that one lets it go. */
  round: string | undefined;
  /** Ends the waiting. The waiter leaves at once. */
  readonly settle: (outcome: Outcome) => void;
}

/** How long a member that was asked to stop waits for the reason. */
const graceMs = 1000;

/** Why an exchange is broken, by the code of what ended the question. */
const broken: Readonly<
  Partial<Record<RpcCode, Release["error"]>> & { readonly unavailable: Release["error"] }
> = {
  deadline_exceeded: { code: "deadline_exceeded", message: "not all members came in time" },
  unavailable: { code: "aborted", message: "the member that led it was lost, or gave up" },
};

/** At which exchanges this process waits, and which exchanges wait for it. */
export class Arrivals {
  readonly #waiters = new Map<string, Waiter>();
  readonly #awaited = new Map<string, Set<() => void>>();

  /** @throws RpcError `failed_precondition` when this process waits at an exchange of that name */
  enter(name: string, waiter: Waiter): void {
    if (this.#waiters.has(name))
      throw new RpcError({
        code: "failed_precondition",
        message: `exchange "${name}": this process waits there already`,
      });
    this.#waiters.set(name, waiter);
    for (const notify of [...(this.#awaited.get(name) ?? [])]) notify();
  }

  leave(name: string, waiter: Waiter): void {
    if (this.#waiters.get(name) === waiter) this.#waiters.delete(name);
  }

  /**
   * Counts this process for a round as soon as it has come.
   *
   * @throws RpcError `failed_precondition` when it does something else there; the reason of `signal`, which ends waiting
   */
  async collect({ name, kind, round }: Collect, rank: number, signal: AbortSignal): Promise<Brought> {
    const waiter = this.#waiters.get(name) ?? (await this.#arrival(name, signal));
    if (waiter.kind !== kind)
      throw new RpcError({
        code: "failed_precondition",
        message: `exchange "${name}": rank ${rank} is there for ${waiter.kind}, others for ${kind}`,
      });
    waiter.round = round;
    // The leader was lost, or the time is up.
    const onAbort = (): void => {
      const { code } = signal.reason as RpcError;
      const settle = (): void => {
        if (waiter.round === round)
          waiter.settle({ error: broken[code] ?? broken.unavailable, result: undefined });
      };
      // A member that cancels is about to send the reason, unless it was asked to stop itself.
      if (code === "cancelled") setTimeout(settle, graceMs).unref();
      else settle();
    };
    signal.addEventListener("abort", onAbort, { once: true });
    return { brought: [[rank, waiter.value]] };
  }

  /** Lets this process go on, if it was counted for this round. */
  release({ name, round, error, result }: Release): void {
    const waiter = this.#waiters.get(name);
    if (waiter?.round === round) waiter.settle({ error, result });
  }

  async #arrival(name: string, signal: AbortSignal): Promise<Waiter> {
    const awaited = this.#awaited.get(name) ?? new Set();
    this.#awaited.set(name, awaited);
    let end = (): void => undefined;
    try {
      await new Promise<void>((resolve, reject) => {
        const onAbort = (): void => reject(signal.reason);
        if (signal.aborted) return onAbort();
        signal.addEventListener("abort", onAbort, { once: true });
        awaited.add(resolve);
        end = () => {
          signal.removeEventListener("abort", onAbort);
          awaited.delete(resolve);
        };
      });
    } finally {
      end();
      if (awaited.size === 0) this.#awaited.delete(name);
    }
    // It has come and may have gone before this turn.
    return this.#waiters.get(name) ?? this.#arrival(name, signal);
  }
}
