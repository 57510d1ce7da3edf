import { type RpcCode, RpcError } from "cinnabar/standard";
import type { Brought, Collect, ExchangeKind, Release } from "./exchange-service.ts";

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
