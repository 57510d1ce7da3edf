import { setMaxListeners } from "node:events";
import { type AnyService, RpcError } from "cinnabar/standard";
import type { BulkCopy } from "./bulk-copy.ts";
import type { CarriedMember, Envelope, Reply } from "./envelope.ts";
import { failureOf, parse } from "./failure.ts";
import { isLater, type MaybePromise, whenThere } from "./handlers.ts";
import type { Members, Reached } from "./members.ts";
import type { CollectiveMethod } from "./method.ts";
import type { Failure, Tally } from "./result.ts";
import type { Costs } from "./tree.ts";
import { subtrees } from "./tree.ts";

/** The time and the end of a call to a child. */
export interface SendOptions {
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** What a node needs of its process to send calls on. */
export interface Sending {
  readonly members: Members;
  readonly costs: Costs;
  /** Sends the call to a peer. `offers`: how much of the region this node has, of a collective with one. */
  send(
    to: Reached,
    service: AnyService,
    name: string,
    envelope: Envelope,
    options: SendOptions,
    offers: AsyncIterable<number> | undefined,
  ): Promise<Reply>;
  /** Called when a node replaces a child that failed. `adopted`: the nodes below that child. */
  onRepair(about: Subject, rank: number, adopted: readonly number[]): void;
}

/** Which collective a call is of, and what is carried. */
export interface Subject {
  readonly service: AnyService;
  readonly name: string;
  readonly method: CollectiveMethod;
  /** As it arrived, or as the root made it for itself. */
  readonly envelope: Envelope;
  /** The member of each rank of the run. */
  readonly run: readonly CarriedMember[];
  /** The caller's region as this node has it, of a collective with one. */
  readonly copy: BulkCopy | undefined;
}

const longestMessage = 500;

/** The part of a collective that a node has others do: it calls its children, and theirs where a child fails. */
export class Below {
  readonly #subject: Subject;
  /** What all children get. */
  readonly #common: Envelope;
  readonly #sending: Sending;
  readonly #tally: Tally;
  readonly #answerByMs: number;
  /** The place of the first child in the tally: a root that is not a target has no place there. */
  readonly #shift: number;
  readonly #end = new AbortController();
  #isStopped = false;
  /** Calls to children that go on. */
  #unanswered = 0;

  /** @param isTarget whether the node itself has a place in the tally */
  constructor(subject: Subject, sending: Sending, tally: Tally, isTarget: boolean, answerByMs: number) {
    this.#subject = subject;
    // The caller of this node may have sent what this call does not have.
    const { members, inputs, region, ...common } = subject.envelope;
    this.#common = { ...common, level: common.level + 1 };
    this.#sending = sending;
    this.#tally = tally;
    this.#shift = isTarget ? 0 : -1;
    this.#answerByMs = answerByMs;
    // Every child's call listens.
    setMaxListeners(0, this.#end.signal);
  }

  /** Sends the call to all children. Resolves when each has answered, or those that took its place. */
  sendToAll(): Promise<unknown> {
    return this.#sendToAll(0, this.#subject.envelope.ranks.length, false);
  }

  /** The reply is made. Later answers do not count, and calls to children that have not answered end. */
  stop(): void {
    this.#isStopped = true;
    // A process that leaves is lost alone: its parent comes for its children.
    if (this.#unanswered === 0 || this.#sending.members.engine.state === "closed") return;
    this.#end.abort(new RpcError({ code: "cancelled", message: "the collective has ended" }));
  }

  /** To the children of the node at `start`, which is this one, or one that failed. */
  #sendToAll(start: number, count: number, isRepair: boolean): Promise<unknown> {
    const children = subtrees(this.#subject.envelope.tree, count);
    return Promise.all(children.map((child) => this.#send(start + child.offset, child.count, isRepair)));
  }

  async #send(start: number, count: number, isRepair: boolean): Promise<void> {
    const leftMs = Math.floor(this.#answerByMs - performance.now());
    if (this.#isStopped || leftMs < 1) return;
    const first = start + this.#shift;
    this.#tally.begin(first, count);
    try {
      const reply = await this.#ask(start, count, leftMs);
      if (this.#isStopped) return;
      if (reply.refusal !== undefined) throw new Refused(reply.refusal);
      const checked = this.#checked(reply);
      this.#tally.merge(first, count, isLater(checked) ? await checked : checked);
      if (isRepair) this.#tally.noteRepaired(first);
    } catch (error) {
      if (this.#isStopped) return;
      const isCertain = error instanceof Refused || (error instanceof RpcError && error.notExecuted === true);
      // The child did not take this message, so it sent nothing on.
      if (isCertain) this.#tally.undo(first, count);
      this.#tally.fail(first, error instanceof Refused ? error.failure : failureOf(error));
      if (this.#subject.envelope.onFailure === "failout") this.#failRun(first + 1, count - 1);
      else await this.#repair(start, count);
    }
  }

  async #ask(start: number, count: number, leftMs: number): Promise<Reply> {
    const { envelope, run, service, name, copy } = this.#subject;
    const { members, costs } = this.#sending;
    const member = run[start] as CarriedMember;
    const end = start + count;
    const onward: Envelope = {
      ...this.#common,
      incarnation: member.incarnation,
      ranks: envelope.ranks.slice(start, end),
      ...(envelope.isStrict ? undefined : { members: run.slice(start, end).map(carried) }),
      ...(envelope.inputs === undefined ? undefined : { inputs: envelope.inputs.slice(start, end) }),
      ...(copy === undefined ? undefined : { region: copy.region }),
    };
    const to = reached(members, member);
    const options = { timeoutMs: leftMs, signal: this.#end.signal };
    const sentMs = performance.now();
    const answer = this.#sending.send(to, service, name, onward, options, copy?.offers());
    costs.noteSent(performance.now() - sentMs);
    this.#unanswered++;
    try {
      const reply = await answer;
      if (!this.#isStopped) costs.noteRoundTrip(performance.now() - sentMs - reply.elapsedMs);
      return reply;
    } finally {
      this.#unanswered--;
    }
  }

  /** The reply with a value that the contract allows. */
  #checked(reply: Reply): MaybePromise<Reply> {
    const { output } = this.#subject.method.collective;
    if (output === undefined || reply.ok.length === 0) return { ...reply, value: undefined };
    return whenThere(parse(output, reply.value, "output"), (parsed) => {
      if ("failure" in parsed) throw new RpcError({ ...parsed.failure, code: "internal", origin: "remote" });
      return { ...reply, value: parsed.value };
    });
  }

  /** Takes the place of a child, where that has children. */
  async #repair(start: number, count: number): Promise<void> {
    const [rank, ...adopted] = this.#subject.envelope.ranks.slice(start, start + count);
    if (adopted.length === 0) return;
    this.#sending.onRepair(this.#subject, rank as number, adopted);
    await this.#sendToAll(start, count, true);
  }

  #failRun(first: number, count: number): void {
    const failure: Failure = { code: "aborted", message: "the rank above it failed", retryable: true };
    for (let index = first; index < first + count; index++) this.#tally.fail(index, failure);
  }
}

/** @throws Refused where this process cannot reach the member at all: its URLs are of fabrics that it does not know */
function reached(members: Members, member: CarriedMember): Reached {
  try {
    return members.reach(member);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new Refused({
      code: "unimplemented",
      message: error.message.slice(0, longestMessage),
      retryable: false,
    });
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

const carried = ({ rank, incarnation, engine, urls, host }: CarriedMember): CarriedMember => ({
  ...{ rank, incarnation, engine, urls, host },
});
