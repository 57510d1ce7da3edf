import { RpcError } from "cinnabar/standard";
import { Below, type Sending, type Subject } from "./below.ts";
import type { BulkSource } from "./bulk-copy.ts";
import type { Reply } from "./envelope.ts";
import { failureOf } from "./failure.ts";
import type { ServedCollective } from "./handlers.ts";
import { isLater, type MaybePromise, whenThere } from "./handlers.ts";
import { type OwnHost, OwnPart, type Prepared } from "./own-part.ts";
import { type Failure, Tally } from "./result.ts";
import { heightOf } from "./tree.ts";

/** A call at one node. The run releases its copy of a region. */
export interface NodeParts extends Subject {
  /** What this node executes; undefined where it only sends the call on: a root that is no target. */
  readonly served: ServedCollective | undefined;
  /** The caller's deadline, on `performance.now()`'s clock. */
  readonly deadlineMs: number;
}

/** What a node needs of its process to do its part of a collective. */
export type NodeHost = Sending & Pick<OwnHost, "detached">;

const outOfTime: Failure = {
  code: "deadline_exceeded",
  message: "no answer came in time",
  retryable: false,
};

/**
 * One node's part in a collective. It sends the call on, runs its own handler, and makes one reply of all replies. The
 * reply is made in time for the parent, and lists what is missing then. When a child fails, its children become this
 * node's.
 *
 * A call may reach a node several times: when its parent fails, the parent's parent replaces it. All these calls wait
 * for the same run. The run ends early when no call waits any more. If the parent was lost it goes on, since the
 * parent's parent may still call.
 *
 * Most nodes are leaves with a synchronous handler. Such a run ends before `start` returns, and never makes what only
 * waiting needs: timer, promises, signals and their listeners.
 */
export class NodeRun implements OwnHost {
  /** When this node must answer. */
  readonly answerByMs: number;
  readonly #parts: NodeParts;
  readonly #host: NodeHost;
  readonly #tally: Tally;
  readonly #startedMs = performance.now();
  readonly #own: OwnPart | undefined;
  /** Undefined at a leaf. */
  readonly #below: Below | undefined;
  #handlerEnd: AbortController | undefined;
  #stoppedBy: Failure | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** Set when the run has ended. */
  #ended: Reply | undefined;
  #reply: Promise<Reply> | undefined;
  #resolve: ((reply: Reply) => void) | undefined;
  #isExecuting = false;
  #waiting = 0;

  constructor(parts: NodeParts, host: NodeHost) {
    this.#parts = parts;
    this.#host = host;
    const { envelope, served, deadlineMs, method } = parts;
    const { ranks, tree, marginMs } = envelope;
    const isTarget = served !== undefined;
    this.#tally = new Tally(isTarget ? ranks : ranks.slice(1), method.collective.reduce);
    // Where time is short for as many hops as there are below, each gets its share.
    const leftMs = Math.max(0, deadlineMs - this.#startedMs);
    const hops = heightOf(tree, ranks.length) + 2;
    this.answerByMs = deadlineMs - Math.min(marginMs, leftMs / hops);
    this.#own = isTarget ? new OwnPart(served, envelope, this) : undefined;
    this.#below =
      ranks.length > 1 ? new Below(parts, host, this.#tally, isTarget, this.answerByMs) : undefined;
  }

  /** Does the work, once. It goes on behind this where it must wait for something. */
  start(): void {
    try {
      const working = this.#work();
      if (!isLater(working)) return;
      working.then(undefined, (error: unknown) => this.stop(failureOf(error)));
      if (this.#ended !== undefined) return;
      this.#timer = setTimeout(() => this.stop(outOfTime), this.answerByMs - performance.now());
    } catch (error) {
      this.stop(failureOf(error));
    }
  }

  /** The reply, which always comes: complete, or with what there is when the time is up or the run is stopped. */
  get reply(): Promise<Reply> {
    this.#reply ??=
      this.#ended !== undefined
        ? Promise.resolve(this.#ended)
        : new Promise((resolve) => {
            this.#resolve = resolve;
          });
    return this.#reply;
  }

  /**
   * A request waits for the reply. The signal of `call` fires with a reason when it stops waiting. `parent` is the
   * sender of a collective with a region.
   */
  wait(
    call: { readonly signal: AbortSignal },
    level: number,
    parent: BulkSource | undefined,
  ): MaybePromise<Reply> {
    if (this.#ended !== undefined) return this.#ended;
    this.#waiting++;
    if (parent !== undefined) this.#parts.copy?.follow(parent);
    const { signal } = call;
    const onAbort = (): void => {
      this.#waiting--;
      const reason: unknown = signal.reason;
      const isLost = reason instanceof RpcError && reason.code === "unavailable";
      // The root has no parent. When it is lost, no member takes its place.
      if (this.#waiting === 0 && !(isLost && level > 1)) this.stop(failureOf(reason));
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    return this.reply.finally(() => signal.removeEventListener("abort", onAbort));
  }

  /** Ends now: what is not known yet has failed with this. False when it had ended before. */
  stop(failure: Failure): boolean {
    if (this.#ended !== undefined) return false;
    this.#stoppedBy = failure;
    this.#tally.close(failure);
    this.#settle();
    this.#handlerEnd?.abort(reasonOf(failure));
    return true;
  }

  /** The name of the group. */
  get group(): string {
    return this.#host.members.name;
  }

  get handlerSignal(): AbortSignal {
    if (this.#handlerEnd === undefined) {
      this.#handlerEnd = new AbortController();
      if (this.#stoppedBy !== undefined) this.#handlerEnd.abort(reasonOf(this.#stoppedBy));
    }
    return this.#handlerEnd.signal;
  }

  detached<A extends unknown[], R>(work: (...args: A) => R, ...args: A): R {
    return this.#host.detached(work, ...args);
  }

  #work(): MaybePromise<void> {
    return this.#own === undefined
      ? this.#goOn(undefined)
      : whenThere(this.#own.prepare(), (prepared) => this.#goOn(prepared));
  }

  /** @param prepared undefined where this node is no target */
  #goOn(prepared: Prepared | undefined): MaybePromise<void> {
    if (this.#ended !== undefined) return;
    if (prepared !== undefined && "veto" in prepared) return void this.stop(prepared.veto);
    if (prepared !== undefined && "failure" in prepared) this.#tally.fail(0, prepared.failure);
    const { envelope, copy } = this.#parts;
    // Sends first, so that the subtree works while this node does.
    const below = this.#below?.sendToAll();
    const first = envelope.onFailure === "failout" ? below : undefined;
    // What the copy rejects with ends the run: those below have no other source.
    const isReady = whenThere(first, () => copy?.whole());
    const executed = whenThere(isReady, () =>
      prepared !== undefined && "value" in prepared ? this.#execute(prepared.value) : undefined,
    );
    return whenThere(executed, () => whenThere(below, () => this.#settle()));
  }

  #execute(input: unknown): MaybePromise<void> {
    const own = this.#own as OwnPart;
    const tally = this.#tally;
    if (this.#parts.envelope.onFailure === "failout" && tally.failures > 0) {
      const message = "not executed, because a rank below it failed";
      return tally.fail(0, { code: "aborted", message, retryable: true });
    }
    if (this.#ended !== undefined) return;
    tally.begin(0);
    this.#isExecuting = true;
    return whenThere(own.execute(input, this.#parts.copy), (executed) => {
      if ("failure" in executed) tally.fail(0, executed.failure, "yes");
      else tally.succeed(0, executed.value);
      this.#isExecuting = false;
      this.#releaseCopy();
      const after = this.#parts.served?.after;
      if (after !== undefined) void this.reply.then(() => own.after(after, input));
    });
  }

  #settle(): void {
    if (this.#ended !== undefined) return;
    this.#tally.close(outOfTime);
    clearTimeout(this.#timer);
    this.#ended = this.#tally.reply(performance.now() - this.#startedMs);
    this.#resolve?.(this.#ended);
    this.#releaseCopy();
    this.#below?.stop();
  }

  /** When neither a child nor the handler can want it any more. A handler may go on after the reply. */
  #releaseCopy(): void {
    if (this.#ended !== undefined && !this.#isExecuting) this.#parts.copy?.release();
  }
}

const reasonOf = (failure: Failure): RpcError => new RpcError({ ...failure, origin: "remote" });
