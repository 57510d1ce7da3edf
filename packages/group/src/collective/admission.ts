import { byRank, memberOf } from "../view/view.ts";
import { BulkCopy } from "./bulk-copy.ts";
import type { CarriedMember, Envelope } from "./envelope.ts";
import { failureOf } from "./failure.ts";
import type { ServedCollective } from "./handlers.ts";
import type { Members } from "./members.ts";
import type { NodeRun } from "./node-run.ts";
import type { Failure } from "./result.ts";

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
type Found = NodeRun | "new" | "ended" | "full";

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

/** What a refusal is unless it says otherwise. */
export const refused = { code: "failed_precondition", retryable: true } as const;

/** The members of an envelope's run as this process sees them, or why it takes no part in the call. */
export function runOf(
  members: Members,
  { version, isStrict, incarnation, ranks, members: carried }: Envelope,
): readonly CarriedMember[] | string {
  const { self, view, broken } = members;
  const [rank] = ranks;
  if (broken !== undefined) return broken.message;
  if (self === undefined || rank !== self.rank) return `rank ${rank} is another process`;
  if (incarnation !== self.incarnation)
    return `rank ${rank} has the incarnation ${self.incarnation}, the call is for ${incarnation}`;
  if (memberOf(view, self.rank)?.incarnation !== self.incarnation)
    return `rank ${rank} is not in view ${view.version} any more`;
  if (!isStrict) return carried ?? "the call carries no members";
  if (version !== view.version)
    return `rank ${rank} has view ${view.version}, the call is of view ${version}`;
  const known = byRank(view);
  const run = ranks.map((each) => known.get(each));
  return run.every((member) => member !== undefined) ? run : `view ${version} lacks ranks of the call`;
}

/** Memory for the region of a collective that has one, or the reason why there is no memory. */
export function copyFor(
  { engine }: Members,
  { method }: ServedCollective,
  { region, checksum }: Envelope,
): BulkCopy | Failure | undefined {
  const { bulk } = method.collective;
  if (bulk === undefined) return undefined;
  if (region === undefined || region.byteLength < 1 || region.byteLength > bulk.maxBytes)
    return {
      ...refused,
      message: `the call's region has not 1 to ${bulk.maxBytes} bytes`,
      retryable: false,
    };
  try {
    return BulkCopy.into(engine.pool.take(region.byteLength, { access: "read" }), checksum);
  } catch (error) {
    return failureOf(error);
  }
}
