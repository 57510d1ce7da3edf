import type { NodeRun } from "./node-run.ts";

/** The calls of one root at this node. */
interface Root {
  /** Calls with a lower number have ended; they are refused when a late message brings one of them. */
  oldest: number;
  readonly runs: Map<number, Entry>;
}

interface Entry {
  readonly run: NodeRun;
  /** From then on no message of the call can arrive, on `performance.now()`'s clock. */
  readonly endsMs: number;
}

/** Where a call stands at this node. */
export type Found = NodeRun | "new" | "ended" | "full";

/** The most calls that are known at once. */
const mostCalls = 65_536;
/** For how long after a call's deadline a message of it may still arrive. */
const longestDelayMs = 5000;
const sweepMs = 1000;

/**
 * The calls that this node takes part in, and those that it has answered, until their roots say that they have ended or
 * their time is long over. So a handler runs at most once a call, however often the call arrives. Nothing is dropped
 * early to make room: a full table refuses new calls.
 */
export class CallTable {
  readonly #roots = new Map<string, Root>();
  #size = 0;
  #sweep: NodeJS.Timeout | undefined;

  get size(): number {
    return this.#size;
  }

  /** Looks a call up; `oldest` is the least number that its root has open. */
  find(root: string, call: number, oldest: number): Found {
    const known = this.#roots.get(root);
    if (known === undefined) return this.#size < mostCalls ? "new" : "full";
    this.#forgetBelow(known, oldest);
    if (call < known.oldest) return "ended";
    return known.runs.get(call)?.run ?? (this.#size < mostCalls ? "new" : "full");
  }

  add(root: string, call: number, oldest: number, run: NodeRun, deadlineMs: number): void {
    let known = this.#roots.get(root);
    if (known === undefined) {
      known = { oldest, runs: new Map() };
      this.#roots.set(root, known);
    }
    known.runs.set(call, { run, endsMs: deadlineMs + longestDelayMs });
    this.#size++;
    // One timer for all; it does not keep the process alive.
    this.#sweep ??= setInterval(() => this.#dropOld(), sweepMs).unref();
  }

  /** Every run that is known. */
  *[Symbol.iterator](): IterableIterator<NodeRun> {
    for (const { runs } of this.#roots.values()) for (const { run } of runs.values()) yield run;
  }

  close(): void {
    clearInterval(this.#sweep);
    this.#sweep = undefined;
    this.#roots.clear();
    this.#size = 0;
  }

  #forgetBelow(known: Root, oldest: number): void {
    if (oldest <= known.oldest) return;
    known.oldest = oldest;
    for (const call of known.runs.keys()) if (call < oldest) this.#forget(known, call);
  }

  #forget(known: Root, call: number): void {
    if (known.runs.delete(call)) this.#size--;
  }

  #dropOld(): void {
    const nowMs = performance.now();
    for (const [name, known] of this.#roots) {
      for (const [call, { endsMs }] of known.runs) if (endsMs < nowMs) this.#forget(known, call);
      if (known.runs.size === 0) this.#roots.delete(name);
    }
    if (this.#roots.size > 0) return;
    clearInterval(this.#sweep);
    this.#sweep = undefined;
  }
}
