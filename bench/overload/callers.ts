import { type Client, Engine, RpcError } from "cinnabar";
import type { Party } from "../suite/child.ts";
import { percentile } from "../suite/statistics.ts";
import { Overload, type Work } from "./contract.ts";

/** What becomes of the calls of one load. Times are in milliseconds, from making a call to its result. */
export interface Fared {
  /** Calls that succeeded, a second. */
  readonly perSecond: number;
  readonly p50: number;
  readonly p99: number;
  /** Shares of all calls: rejected before they began, and late. */
  readonly rejected: number;
  readonly late: number;
  /** How many calls succeeded in all. */
  readonly succeeded: number;
}

export interface OverloadCallers extends Party {
  /** So many callers, each of which waits for its answer before it calls again. */
  closedLoop(callers: number, work: Job, forMs: number): Promise<Fared>;
  /** So many calls a second, whatever becomes of those before. */
  openLoop(perSecond: number, work: Job, forMs: number): Promise<Fared>;
  /** So many calls at once. */
  burst(calls: number, work: Job): Promise<Fared>;
}

export interface Job {
  readonly kind: Work;
  readonly ms: number;
  readonly timeoutMs: number;
  /** Length of the input. */
  readonly bytes: number;
}

/** What ends in this share of the time tells of the time before the load had settled. */
const settling = 0.2;

/** What becomes of calls. Success is counted when it comes, between the settling and the end of the load. */
class Tally {
  readonly #tookMs: number[] = [];
  readonly #fromMs: number;
  readonly #untilMs: number;
  #made = 0;
  #rejected = 0;
  #late = 0;
  #succeeded = 0;

  constructor(forMs: number) {
    this.#fromMs = performance.now() + settling * forMs;
    this.#untilMs = performance.now() + forMs;
  }

  async count(client: Client<typeof Overload>, { kind, ms, timeoutMs }: Job, padding: string): Promise<void> {
    const madeMs = performance.now();
    this.#made++;
    try {
      await client.work({ kind, ms, padding }, { timeoutMs });
      this.#succeeded++;
      const nowMs = performance.now();
      if (nowMs >= this.#fromMs && nowMs < this.#untilMs) this.#tookMs.push(nowMs - madeMs);
    } catch (error) {
      if (error instanceof RpcError && error.code === "resource_exhausted") this.#rejected++;
      else if (error instanceof RpcError && error.code === "deadline_exceeded") this.#late++;
      else throw error;
    }
  }

  get result(): Fared {
    const sorted = Float64Array.from(this.#tookMs).sort();
    return {
      perSecond: sorted.length / ((this.#untilMs - this.#fromMs) / 1000),
      p50: percentile(sorted, 0.5),
      p99: percentile(sorted, 0.99),
      rejected: this.#rejected / this.#made,
      late: this.#late / this.#made,
      succeeded: this.#succeeded,
    };
  }
}

/** So many engines in one process, as so many clients. */
export async function open(url: string, engines: number): Promise<OverloadCallers> {
  const opened: Engine[] = [];
  const clients: Client<typeof Overload>[] = [];
  for (let i = 0; i < engines; i++) {
    const engine = await Engine.open();
    opened.push(engine);
    clients.push((await engine.connect(url)).client(Overload));
  }
  const client = (number: number) => clients[number % clients.length] as Client<typeof Overload>;

  return {
    async closedLoop(callers, job, forMs) {
      const tally = new Tally(forMs);
      const padding = "x".repeat(job.bytes);
      const untilMs = performance.now() + forMs;
      const call = async (number: number) => {
        while (performance.now() < untilMs) await tally.count(client(number), job, padding);
      };
      await Promise.all(Array.from({ length: callers }, (_, number) => call(number)));
      return tally.result;
    },
    async openLoop(perSecond, job, forMs) {
      const tally = new Tally(forMs);
      const padding = "x".repeat(job.bytes);
      const calls: Promise<void>[] = [];
      const startedMs = performance.now();
      for (let elapsedMs = 0; elapsedMs < forMs; elapsedMs = performance.now() - startedMs) {
        while (calls.length < (elapsedMs / 1000) * perSecond)
          calls.push(tally.count(client(calls.length), job, padding));
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
      await Promise.all(calls);
      return tally.result;
    },
    async burst(calls, job) {
      const tally = new Tally(job.timeoutMs);
      const padding = "x".repeat(job.bytes);
      await Promise.all(
        Array.from({ length: calls }, (_, number) => tally.count(client(number), job, padding)),
      );
      return tally.result;
    },
    close: async () => {
      await Promise.all(opened.map((engine) => engine.close()));
    },
  };
}
