import { setMaxListeners } from "node:events";
import { RpcError, type Schema } from "cinnabar/standard";
import { heightOf, subtrees } from "../tree/shape.ts";
import type { Costs } from "./costs.ts";
import type { CarriedMember, Envelope, Reply } from "./envelope.ts";
import { failureOf, reportHandlerError } from "./failure.ts";
import type { CollectiveCall, ServedCollective } from "./handlers.ts";
import type { Members, Reached } from "./members.ts";
import type { CollectiveParts } from "./method.ts";
import { parse } from "./parse.ts";
import { type Failure, Tally } from "./tally.ts";

/** The time and the end of a call to a child. */
export interface SendOptions {
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** What a node needs to do its part of a collective. */
export interface NodeParts {
  readonly members: Members;
  readonly costs: Costs;
  readonly method: CollectiveParts<Schema, Schema>;
  /** What this node executes; undefined where it only sends the call on: a root that is no target. */
  readonly served: ServedCollective | undefined;
  /** As it arrived, or as the root made it for itself. */
  readonly envelope: Envelope;
  /** The member of each rank of the run. */
  readonly run: readonly CarriedMember[];
  /** The caller's deadline, on `performance.now()`'s clock. */
  readonly deadlineMs: number;
  /** Sends the call to a peer. */
  send(to: Reached, envelope: Envelope, options: SendOptions): Promise<Reply>;
  /** Runs what belongs to no single request: the call may arrive again by another way. */
  detached<T>(work: () => T): T;
}

const outOfTime: Failure = {
  code: "deadline_exceeded",
  message: "no answer came in time",
  retryable: false,
};

/**
 * One node's part in a collective: it sends the call on, runs its own handler, and makes one reply of all that comes
 * back. The reply is made in time for the parent, and tells of what is missing then. When a child fails, its children
 * become this node's.
 *
 * A call may reach a node several times, when its parent fails and the parent's parent takes its place. All of them wait
 * for the same run. It ends early when none of them waits any more, unless the parent was lost: then the parent's parent
 * may still come.
 */
export class NodeRun {
  /** The reply, which always comes: complete, or with what there is when the time is up or the run is stopped. */
  readonly reply: Promise<Reply>;
  readonly #parts: NodeParts;
  readonly #tally: Tally;
  readonly #startedMs = performance.now();
  /** When this node must answer. */
  readonly #answerByMs: number;
  readonly #handlerEnd = new AbortController();
  readonly #childrenEnd = new AbortController();
  readonly #timer: NodeJS.Timeout;
  #finish!: (reply: Reply) => void;
  #isDone = false;
  #waiting = 0;

  constructor(parts: NodeParts) {
    this.#parts = parts;
    const { envelope, served, deadlineMs, method } = parts;
    const ranks = served === undefined ? envelope.ranks.slice(1) : envelope.ranks;
    this.#tally = new Tally(ranks, method.reduce);
    this.reply = new Promise((resolve) => {
      this.#finish = resolve;
    });
    // Every child's call listens.
    setMaxListeners(0, this.#childrenEnd.signal);
    const leftMs = Math.max(0, deadlineMs - this.#startedMs);
    // Where time is short for as many hops as there are below, each gets its share.
    const hops = heightOf(envelope.tree, envelope.ranks.length) + 2;
    this.#answerByMs = deadlineMs - Math.min(envelope.marginMs, leftMs / hops);
    this.#timer = setTimeout(() => this.stop(outOfTime), this.#answerByMs - this.#startedMs);
    this.#work().catch((error: unknown) => this.stop(failureOf(error)));
  }

  /** A request waits for the reply; `signal` fires when it does no more. Its reason says why. */
  wait(signal: AbortSignal, level: number): Promise<Reply> {
    this.#waiting++;
    const onAbort = (): void => {
      this.#waiting--;
      const reason: unknown = signal.reason;
      const isLost = reason instanceof RpcError && reason.code === "unavailable";
      // Nobody is above the root: when it is lost, nobody will take its place.
      if (this.#waiting === 0 && !(isLost && level > 1)) this.stop(failureOf(reason));
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    return this.reply.finally(() => signal.removeEventListener("abort", onAbort));
  }

  /** Ends now: what is not known yet has failed with this. False when it had ended before. */
  stop(failure: Failure): boolean {
    if (this.#isDone) return false;
    const reason = new RpcError({ ...failure, origin: "remote" });
    this.#tally.close(failure);
    this.#settle();
    this.#handlerEnd.abort(reason);
    return true;
  }

  async #work(): Promise<void> {
    const { served, envelope } = this.#parts;
    const input = served === undefined ? undefined : await this.#prepare(served);
    if (this.#isDone) return;
    // Sends first, so that the subtree works while this node does.
    const below = this.#sendToAll(0, envelope.ranks.length);
    if (envelope.onFailure === "failout") await below;
    if (served !== undefined && input !== undefined) await this.#execute(served, input);
    await below;
    this.#settle();
  }

  /** The parsed input, when this node may run and send the call on; undefined when it may only send it on. */
  async #prepare(served: ServedCollective): Promise<{ readonly value: unknown } | undefined> {
    const { input: common, inputs } = this.#parts.envelope;
    const own = inputs === undefined ? common : inputs[0];
    const input = await parse(served.method.collective.input, own, "input");
    if ("failure" in input) {
      this.#tally.fail(0, input.failure);
      return undefined;
    }
    try {
      if (served.before !== undefined) await this.#call(served.before, input.value);
      return input;
    } catch (error) {
      reportHandlerError(served, error);
      const failure = failureOf(error);
      this.stop({ ...failure, message: `refused before it was sent on: ${failure.message}` });
      return undefined;
    }
  }

  async #execute(served: ServedCollective, input: { readonly value: unknown }): Promise<void> {
    const tally = this.#tally;
    if (this.#parts.envelope.onFailure === "failout" && tally.failures > 0) {
      const message = "not executed, because a rank below it failed";
      return tally.fail(0, { code: "aborted", message, retryable: true });
    }
    if (this.#isDone) return;
    tally.begin(0);
    try {
      const output = await this.#call(served.handle, input.value);
      const { output: schema } = served.method.collective;
      const parsed = schema === undefined ? { value: undefined } : await parse(schema, output, "output");
      if ("failure" in parsed) tally.fail(0, { ...parsed.failure, code: "internal" }, "yes");
      else tally.succeed(0, parsed.value);
    } catch (error) {
      reportHandlerError(served, error);
      tally.fail(0, failureOf(error), "yes");
    } finally {
      const { after } = served;
      if (after !== undefined) void this.reply.then(() => this.#runAfter(served, after, input.value));
    }
  }

  async #runAfter(
    served: ServedCollective,
    after: ServedCollective["handle"],
    input: unknown,
  ): Promise<void> {
    try {
      await this.#call(after, input);
    } catch (error) {
      reportHandlerError(served, error, true);
    }
  }

  #call(handler: ServedCollective["handle"], input: unknown): unknown {
    const { envelope, members } = this.#parts;
    const answerByMs = this.#answerByMs;
    const call: CollectiveCall = {
      group: members.name,
      rank: envelope.ranks[0] as number,
      root: envelope.rootRank,
      viewVersion: envelope.version,
      id: `${envelope.root}-${envelope.call}`,
      signal: this.#handlerEnd.signal,
      get timeLeftMs() {
        return Math.max(0, answerByMs - performance.now());
      },
    };
    return this.#parts.detached(() => handler(input, call));
  }

  /** Sends the call to the children of the node at `start`, which is this one, or one that failed. */
  async #sendToAll(start: number, count: number, isRepair = false): Promise<void> {
    const { envelope } = this.#parts;
    const children = subtrees(envelope.tree, count);
    await Promise.all(children.map((child) => this.#send(start + child.offset, child.count, isRepair)));
  }

  async #send(start: number, count: number, isRepair: boolean): Promise<void> {
    const first = this.#indexOf(start);
    if (this.#isDone || this.#leftMs < 1) return;
    try {
      const { reply, tookMs } = await this.#ask(start, count);
      if (this.#isDone) return;
      this.#parts.costs.noteRoundTrip(tookMs - reply.elapsedMs);
      if (reply.refusal !== undefined) throw new Refused(reply.refusal);
      this.#tally.merge(first, count, await this.#checked(reply));
      if (isRepair) this.#tally.noteRepaired(first);
    } catch (error) {
      if (this.#isDone) return;
      const isCertain = error instanceof Refused || (error instanceof RpcError && error.notExecuted === true);
      // It sent nothing on, either.
      if (isCertain) this.#tally.undo(first, count);
      this.#tally.fail(first, error instanceof Refused ? error.failure : failureOf(error));
      if (envelopeRepairs(this.#parts.envelope)) await this.#sendToAll(start, count, true);
      else this.#failRun(first + 1, count - 1);
    }
  }

  async #ask(start: number, count: number): Promise<{ reply: Reply; tookMs: number }> {
    const { envelope, members, run, costs } = this.#parts;
    const member = run[start] as CarriedMember;
    const onward: Envelope = {
      ...envelope,
      incarnation: member.incarnation,
      ranks: envelope.ranks.slice(start, start + count),
      members: envelope.isStrict ? undefined : run.slice(start, start + count).map(carried),
      inputs: envelope.inputs?.slice(start, start + count),
      level: envelope.level + 1,
    };
    this.#tally.begin(this.#indexOf(start), count);
    const sentMs = performance.now();
    const options = { timeoutMs: Math.max(1, this.#leftMs), signal: this.#childrenEnd.signal };
    const answer = this.#parts.send(members.reach(member), onward, options);
    costs.noteSent(performance.now() - sentMs);
    const reply = await answer;
    return { reply, tookMs: performance.now() - sentMs };
  }

  /** The reply with a value that the contract allows. */
  async #checked(reply: Reply): Promise<Reply> {
    const { output } = this.#parts.method;
    if (output === undefined || reply.ok.length === 0) return { ...reply, value: undefined };
    const parsed = await parse(output, reply.value, "output");
    if ("failure" in parsed) throw new RpcError({ ...parsed.failure, code: "internal", origin: "remote" });
    return { ...reply, value: parsed.value };
  }

  #failRun(first: number, count: number): void {
    const failure: Failure = { code: "aborted", message: "the rank above it failed", retryable: true };
    for (let index = first; index < first + count; index++) this.#tally.fail(index, failure);
  }

  #settle(): void {
    if (this.#isDone) return;
    this.#tally.close({ ...outOfTime });
    this.#isDone = true;
    clearTimeout(this.#timer);
    this.#finish(this.#tally.reply(performance.now() - this.#startedMs));
    // Children that have not answered hear that nobody waits for them.
    this.#childrenEnd.abort(new RpcError({ code: "cancelled", message: "the collective has ended" }));
  }

  /** Whole milliseconds until this node must answer. */
  get #leftMs(): number {
    return Math.floor(this.#answerByMs - performance.now());
  }

  /** Of a place in the run, in the tally: that of a root that is no target lacks the first place. */
  #indexOf(place: number): number {
    return this.#parts.served === undefined ? place - 1 : place;
  }
}

/** A node that took no part in the call. */
class Refused extends Error {
  readonly failure: Failure;

  constructor(failure: Failure) {
    super(failure.message);
    this.failure = failure;
  }
}

const envelopeRepairs = ({ onFailure }: Envelope): boolean => onFailure !== "failout";

const carried = ({ rank, incarnation, engine, urls, host }: CarriedMember): CarriedMember => ({
  ...{ rank, incarnation, engine, urls, host },
});
