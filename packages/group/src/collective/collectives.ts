import { AsyncResource } from "node:async_hooks";
import { randomBytes } from "node:crypto";
import { type AnyService, type CallContext, RpcError } from "cinnabar/standard";
import { chooseShape } from "../tree/choose.ts";
import { memberOf } from "../view/view.ts";
import { CallTable } from "./call-table.ts";
import { Costs } from "./costs.ts";
import type { CarriedMember, Envelope, Reply } from "./envelope.ts";
import { type CollectiveHost, type GroupImplementation, refusal, type ServedCollective } from "./handlers.ts";
import type { Members, Reached } from "./members.ts";
import {
  type CollectiveInput,
  type CollectiveMethod,
  type CollectiveOutput,
  type CollectivesOf,
  isCollective,
} from "./method.ts";
import { NodeRun, type SendOptions } from "./node-run.ts";
import { assertCollectiveOptions, type CollectiveCallOptions } from "./options.ts";
import { parse } from "./parse.ts";
import { CollectiveError, type CollectiveResult, resultOf } from "./result.ts";
import { byRank, targetsOf } from "./targets.ts";

/** Calls one collective. Rejects with an `RpcError`; a `CollectiveError` tells of every member. */
export type CollectiveFunction<M> = (
  input: CollectiveInput<M>,
  options?: CollectiveCallOptions,
) => Promise<CollectiveResult<CollectiveOutput<M>>>;

/** A client of a service's collectives: one function for each. */
export type CollectiveClient<S extends AnyService> = {
  readonly [K in CollectivesOf<S>]: CollectiveFunction<S["methods"][K]>;
};

/** What goes to the members: one input for all, or one for each rank. */
interface Inputs {
  readonly input: unknown;
  readonly of?: (rank: number) => unknown;
}

/** The options of `openCollectives`. */
export interface CollectivesOptions {
  /**
   * What this member executes, made by `implementCollectives`; its engine must serve the same. Default: nothing, so that
   * this member can call and takes no part in calls of others.
   */
  readonly serve?: readonly GroupImplementation[];
}

/** Counters of collectives since they were opened. */
export interface CollectiveStats {
  /** Calls that were begun here. */
  readonly started: number;
  /** Those whose targets all succeeded. */
  readonly succeeded: number;
  /** Requests of other members that this one took part in. */
  readonly joined: number;
  /** Requests that brought a call which was known already: the tree was repaired. */
  readonly rejoined: number;
  /** Requests that were refused. */
  readonly refused: number;
  /** Calls that are remembered, so that none is executed twice. */
  readonly remembered: number;
}

/**
 * Calls that all members of a group execute, along trees of members. Close it before the group.
 *
 * @throws TypeError for an unknown option, or an implementation that serves this group already
 *
 * @example
 * const collectives = openCollectives(group, { serve: [store] });
 * const { value, failed } = await collectives.all(Store).usage({ pool: "a" }, { onFailure: "partial" });
 */
export function openCollectives(members: Members, options: CollectivesOptions = {}): Collectives {
  const unknown = Object.keys(options).find((name) => name !== "serve");
  if (unknown !== undefined)
    throw new TypeError(`openCollectives: unknown option "${unknown}"; known is serve`);
  return new Collectives(members, options.serve ?? []);
}

/** The collectives of one process in one group; made by `openCollectives`. */
export class Collectives implements Disposable {
  readonly #members: Members;
  readonly #serve: readonly GroupImplementation[];
  readonly #costs = new Costs();
  readonly #table = new CallTable();
  readonly #open = new Map<number, NodeRun>();
  /** Names this root. Random: a restarted process is another root. */
  readonly #root = randomBytes(16).toString("hex");
  /** Handlers belong to a call of the group, and not to the request that happened to bring it. */
  readonly #outside = new AsyncResource("CinnabarCollectives");
  readonly #clients = new WeakMap<Reached, Map<AnyService, Record<string, unknown>>>();
  readonly #counts = { started: 0, succeeded: 0, joined: 0, rejoined: 0, refused: 0 };
  #calls = 0;
  #isClosed = false;

  /** @internal Made by `openCollectives`. */
  constructor(members: Members, serve: readonly GroupImplementation[]) {
    this.#members = members;
    this.#serve = serve;
    const taken = serve.find(({ hosts }) => hosts.has(members.name));
    if (taken !== undefined)
      throw new TypeError(
        `openCollectives: "${taken.service.name}" serves the group "${members.name}" already; close that first`,
      );
    const host: CollectiveHost = { serve: (...request) => this.#take(...request) };
    for (const { hosts } of serve) hosts.set(members.name, host);
  }

  /**
   * A client of the service's collectives.
   *
   * @throws TypeError for a service without collectives
   */
  all<S extends AnyService>(service: S): CollectiveClient<S> {
    const methods = Object.entries(service.methods).filter(([, method]) => isCollective(method));
    if (methods.length === 0)
      throw new TypeError(`collectives: the service "${service.name}" has no collective`);
    const client: Record<string, unknown> = Object.create(null);
    for (const [name, method] of methods)
      client[name] = (input: unknown, options: CollectiveCallOptions = {}) =>
        this.#call(service, name, method as CollectiveMethod, { input }, options);
    return Object.freeze(client) as CollectiveClient<S>;
  }

  /** @internal A call with an input of each member's own. */
  scatter(
    service: AnyService,
    name: string,
    inputOf: (rank: number) => unknown,
    options: CollectiveCallOptions,
  ): Promise<CollectiveResult<unknown>> {
    const method = service.methods[name] as CollectiveMethod;
    return this.#call(service, name, method, { input: undefined, of: inputOf }, options);
  }

  /** The group. */
  get members(): Members {
    return this.#members;
  }

  /** Counters since it was opened. Plain data. */
  stats(): CollectiveStats {
    return { ...this.#counts, remembered: this.#table.size };
  }

  /** Ends the calls that were begun here and the part that this member has in others. Safe to call twice. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const { hosts } of this.#serve) hosts.delete(this.#members.name);
    const failure = { code: "unavailable", message: "the collectives were closed", retryable: true } as const;
    for (const run of [...this.#open.values(), ...this.#table]) run.stop(failure);
    this.#table.close();
    this.#outside.emitDestroy();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  async #call(
    service: AnyService,
    name: string,
    method: CollectiveMethod,
    inputs: Inputs,
    options: CollectiveCallOptions,
  ): Promise<CollectiveResult<unknown>> {
    assertCollectiveOptions(options);
    const path = `${service.name}/${name}`;
    const { timeoutMs = method.collective.timeoutMs, signal, onFailure = "fail" } = options;
    const deadlineMs = performance.now() + timeoutMs;
    if (inputs.of === undefined) {
      const parsed = await parse(method.collective.input, inputs.input, "input");
      if ("failure" in parsed) throw new RpcError({ ...parsed.failure, method: path, notExecuted: true });
    }
    this.#assertMayCall(path, signal);
    const { run, absent, isTarget } = targetsOf(this.#members, path, options);
    const served = isTarget ? this.#servedOf(service, name) : undefined;
    if (isTarget && served === undefined)
      throw new RpcError({
        code: "failed_precondition",
        message: `${path}: this member does not serve it; pass it to openCollectives, or exclude rank ${this.#members.self?.rank}`,
        notExecuted: true,
      });
    const call = ++this.#calls;
    const envelope = this.#envelope(call, run, inputs, options);
    const parts = { method: method.collective, served, envelope, run, deadlineMs };
    const reply = await this.#begin(call, service, name, parts, signal);
    const result = resultOf(reply, absent);
    if (result.failed.size === 0) this.#counts.succeeded++;
    else if (onFailure !== "partial" || result.ok.length === 0) throw new CollectiveError(path, result);
    return result;
  }

  /** Runs the root's part. The call is open for as long as that takes: receivers remember it. */
  async #begin(
    call: number,
    service: AnyService,
    name: string,
    parts: Pick<
      ConstructorParameters<typeof NodeRun>[0],
      "method" | "served" | "envelope" | "run" | "deadlineMs"
    >,
    signal: AbortSignal | undefined,
  ): Promise<Reply> {
    this.#counts.started++;
    const run = new NodeRun({ ...parts, ...this.#common(service, name) });
    this.#open.set(call, run);
    let isCancelled = false;
    const onAbort = (): void => {
      isCancelled = run.stop({ code: "cancelled", message: "the caller gave up", retryable: false });
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      const reply = await run.reply;
      if (isCancelled) throw cancelled(`${service.name}/${name}`, signal as AbortSignal);
      return reply;
    } finally {
      signal?.removeEventListener("abort", onAbort);
      this.#open.delete(call);
    }
  }

  #common(service: AnyService, name: string) {
    return {
      members: this.#members,
      costs: this.#costs,
      send: (to: Reached, envelope: Envelope, options: SendOptions) =>
        this.#send(to, service, name, envelope, options),
      detached: <T>(work: () => T): T => this.#outside.runInAsyncScope(work),
    };
  }

  #send(
    to: Reached,
    service: AnyService,
    name: string,
    envelope: Envelope,
    options: SendOptions,
  ): Promise<Reply> {
    let clients = this.#clients.get(to);
    if (clients === undefined) {
      clients = new Map();
      this.#clients.set(to, clients);
    }
    let client = clients.get(service);
    if (client === undefined) {
      // The call has its own time and its own end: it outlives the request that brought it here.
      client = to.client(service, { inherit: false }) as unknown as Record<string, unknown>;
      clients.set(service, client);
    }
    const send = client[name] as (input: Envelope, options: SendOptions) => Promise<Reply>;
    return send(envelope, options);
  }

  #assertMayCall(path: string, signal: AbortSignal | undefined): void {
    if (this.#isClosed)
      throw new RpcError({
        code: "unavailable",
        message: `${path}: the collectives were closed`,
        notExecuted: true,
      });
    if (signal?.aborted) throw cancelled(path, signal);
  }

  #envelope(
    call: number,
    run: readonly CarriedMember[],
    { input, of }: Inputs,
    { tree = "auto", view = "strict", onFailure = "fail" }: CollectiveCallOptions,
  ): Envelope {
    const { self, view: current, name } = this.#members;
    const [oldest = call] = this.#open.keys();
    return {
      ...{ group: name, root: this.#root, rootRank: self?.rank, call, oldest, onFailure, input },
      version: current.version,
      isStrict: view === "strict",
      incarnation: self?.incarnation ?? 0,
      ranks: run.map(({ rank }) => rank),
      members: undefined,
      inputs: of && run.map(({ rank }) => of(rank)),
      tree: tree === "auto" ? chooseShape(run.length, this.#costs.message) : tree,
      level: 0,
      marginMs: this.#costs.marginMs,
    };
  }

  #servedOf(service: AnyService, name: string): ServedCollective | undefined {
    const implementation = this.#serve.find((each) => each.service.name === service.name);
    return implementation?.collectives.get(name);
  }

  /** A request of another member. */
  async #take(served: ServedCollective, envelope: Envelope, call: CallContext): Promise<Reply> {
    const { root, call: number, oldest } = envelope;
    const found = this.#table.find(root, number, oldest);
    if (typeof found === "object") {
      this.#counts.rejoined++;
      return found.wait(call.signal, envelope.level);
    }
    const run = this.#runOf(envelope);
    const why = found === "new" ? (typeof run === "string" ? run : undefined) : unknowable[found];
    if (why !== undefined || typeof run === "string") {
      this.#counts.refused++;
      const code = found === "full" ? "resource_exhausted" : "failed_precondition";
      return refusal({ code, message: why ?? "", retryable: found !== "ended" });
    }
    this.#counts.joined++;
    const deadlineMs = performance.now() + call.timeLeftMs;
    const { service, name, method } = served;
    const parts = { method: method.collective, served, envelope, run, deadlineMs };
    const node = new NodeRun({ ...parts, ...this.#common(service, name) });
    this.#table.add(root, number, oldest, node, deadlineMs);
    return node.wait(call.signal, envelope.level);
  }

  /** The members of an envelope's run, or why this process takes no part. */
  #runOf({ version, isStrict, incarnation, ranks, members }: Envelope): readonly CarriedMember[] | string {
    const { self, view } = this.#members;
    const [rank] = ranks;
    if (self === undefined || rank !== self.rank) return `rank ${rank} is another process`;
    if (incarnation !== self.incarnation)
      return `rank ${rank} has the incarnation ${self.incarnation}, the call is for ${incarnation}`;
    if (memberOf(view, self.rank)?.incarnation !== self.incarnation)
      return `rank ${rank} is not in view ${view.version} any more`;
    if (!isStrict) return members ?? "the call carries no members";
    if (version !== view.version)
      return `rank ${rank} has view ${view.version}, the call is of view ${version}`;
    const known = byRank(view);
    const run = ranks.map((each) => known.get(each));
    return run.every((member) => member !== undefined) ? run : `view ${version} lacks ranks of the call`;
  }
}

const unknowable = {
  ended: "the call has ended",
  full: "this member takes part in as many calls as it can remember",
};

const cancelled = (path: string, signal: AbortSignal): RpcError =>
  new RpcError({
    // As a client's calls have it for `AbortSignal.timeout`.
    code: (signal.reason as Error | undefined)?.name === "TimeoutError" ? "deadline_exceeded" : "cancelled",
    message: `${path}: the caller gave up`,
    method: path,
    cause: signal.reason,
  });
