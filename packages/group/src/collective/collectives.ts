import { AsyncResource } from "node:async_hooks";
import { randomBytes } from "node:crypto";
import {
  type AnyService,
  type CallContext,
  type InputArgument,
  type RemoteRegion,
  RpcError,
  type Schema,
} from "cinnabar/standard";
import { channels } from "../group/events.ts";
import { CallTable, copyFor, refused, runOf } from "./admission.ts";
import type { SendOptions } from "./below.ts";
import { BulkCopy } from "./bulk-copy.ts";
import type { CarriedMember, Envelope, Reply } from "./envelope.ts";
import { checkedFailure, parse } from "./failure.ts";
import {
  type CollectiveHost,
  type GroupImplementation,
  type MaybePromise,
  refusal,
  type ServedCollective,
} from "./handlers.ts";
import { type Members, type Reached, removalOf } from "./members.ts";
import {
  type CollectiveMethod,
  type CollectiveOutput,
  type CollectivesOf,
  type ErrorSchemasOf,
  type InputSchemaOf,
  isCollective,
  type WithBulk,
} from "./method.ts";
import { type NodeHost, type NodeParts, NodeRun } from "./node-run.ts";
import {
  type BulkCallOptions,
  type CollectiveCallOptions,
  type ResolvedCallOptions,
  resolveCallOptions,
  targetsOf,
} from "./options.ts";
import { CollectiveError, type CollectiveResult, type Failure, resultOf } from "./result.ts";
import { Costs, chooseShape } from "./tree.ts";

/** Sends envelopes to members, with one client for each member and service. */
class Carrier {
  readonly #clients = new WeakMap<Reached, Map<AnyService, Record<string, unknown>>>();

  /** `offers`: how much of its region the sender has, of a collective with one. */
  send(
    to: Reached,
    service: AnyService,
    name: string,
    envelope: Envelope,
    options: SendOptions,
    offers: AsyncIterable<number> | undefined,
  ): Promise<Reply> {
    const send = this.#clientOf(to, service)[name] as (...given: unknown[]) => Promise<Reply>;
    return offers === undefined ? send(envelope, options) : send(envelope, offers, options);
  }

  #clientOf(to: Reached, service: AnyService): Record<string, unknown> {
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
    return client;
  }
}

/** Calls one collective. Rejects with an `RpcError`; a `CollectiveError` lists the outcome of every member. */
export type CollectiveFunction<M> = (
  ...args: [
    ...InputArgument<InputSchemaOf<M>>,
    ...WithBulk<M, [options: BulkCallOptions], [options?: CollectiveCallOptions]>,
  ]
) => Promise<CollectiveResult<CollectiveOutput<M>, ErrorSchemasOf<M>>>;

/** A client of a service's collectives: one function for each. */
export type CollectiveClient<S extends AnyService> = {
  readonly [K in CollectivesOf<S>]: CollectiveFunction<S["methods"][K]>;
};

/** What goes to the members: one input for all, or one for each rank. */
interface Inputs {
  readonly input: unknown;
  readonly of?: (rank: number) => unknown;
}

/** Counters of collectives since the group was joined. */
export interface CollectiveStats {
  /** Calls that were begun here. */
  readonly started: number;
  /** Calls whose targets all succeeded. */
  readonly succeeded: number;
  /** Calls with another end: targets failed, or the caller gave up. */
  readonly failed: number;
  /** Requests of other members that this one took part in. */
  readonly joined: number;
  /** Requests that brought a call which was known already: the tree was repaired. */
  readonly rejoined: number;
  /** Requests that were refused. */
  readonly refused: number;
  /** Failed members whose children this process called instead. */
  readonly repairs: number;
  /** Calls that are remembered, so that no call is executed twice. */
  readonly remembered: number;
}

/** An implementation that also acts by itself for each group that serves it. */
export interface ActiveImplementation extends GroupImplementation {
  /** @internal Begins for a group. Dispose of it before the collectives are closed. */
  open(collectives: Collectives): Disposable;
}

export const isActive = (implementation: GroupImplementation): implementation is ActiveImplementation =>
  typeof (implementation as Partial<ActiveImplementation>).open === "function";

/**
 * The collectives of one process in one group: calls that all members execute, along trees of members. It is closed
 * before the group.
 */
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
  /** What every run needs of this process. */
  readonly #host: NodeHost;
  readonly #counts = { started: 0, succeeded: 0, failed: 0, joined: 0, rejoined: 0, refused: 0, repairs: 0 };
  #calls = 0;
  #isClosed = false;

  /**
   * @param serve what this member executes; its engine serves the same
   * @throws TypeError for an implementation that serves this group already
   */
  constructor(members: Members, serve: readonly GroupImplementation[]) {
    this.#members = members;
    this.#serve = serve;
    assertFree(members.name, serve);
    const host: CollectiveHost = {
      serve: (served, envelope, call, offers) => this.#take(served, envelope, call, offers),
    };
    for (const { hosts } of serve) hosts.set(members.name, host);
    const carrier = new Carrier();
    this.#host = {
      members,
      costs: this.#costs,
      send: (to, service, name, envelope, options, offers) =>
        carrier.send(to, service, name, envelope, options, offers),
      onRepair: ({ service, name, envelope }, rank, adopted) => {
        this.#counts.repairs++;
        if (!channels.collectiveRepaired.hasSubscribers) return;
        const about = aboutOf(envelope, `${service.name}/${name}`);
        channels.collectiveRepaired.publish({ ...about, rank, adopted });
      },
      detached: (work, ...args) => this.#outside.runInAsyncScope(work, undefined, ...args),
    };
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
    for (const [name, method] of methods as [string, CollectiveMethod][]) {
      const call = (input: unknown, options: object = {}) =>
        this.#call(service, name, method, { input }, options);
      client[name] = method.collective.takesNothing ? withoutInput(`${service.name}/${name}`, call) : call;
    }
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

  /** Counters since the group was joined. Plain data. */
  stats(): CollectiveStats {
    return { ...this.#counts, remembered: this.#table.size };
  }

  /** Ends the calls that were begun here and the part that this member has in others. Safe to call twice. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const { hosts } of this.#serve) hosts.delete(this.#members.name);
    const failure = { code: "unavailable", message: "the group was closed", retryable: true } as const;
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
    given: object,
  ): Promise<CollectiveResult<unknown>> {
    const { region: schema } = method.collective;
    const options = resolveCallOptions(given, schema !== undefined);
    const path = `${service.name}/${name}`;
    const { timeoutMs = method.collective.timeoutMs, signal, onFailure, bulk } = options;
    const deadlineMs = performance.now() + timeoutMs;
    if (inputs.of === undefined) await assertFits(path, method.collective.input, inputs.input, "input");
    if (schema !== undefined) await assertFits(path, schema, bulk, "bulk");
    this.#assertMayCall(path, signal);
    const { run, absent, isTarget } = targetsOf(this.#members, path, options);
    const served = isTarget ? this.#servedOf(service, name) : undefined;
    if (isTarget && served === undefined)
      throw new RpcError({
        code: "failed_precondition",
        message: `${path}: this member does not serve it; pass it to joinGroup, or exclude rank ${this.#members.self?.rank}`,
        notExecuted: true,
      });
    const call = ++this.#calls;
    const envelope = this.#envelope(call, run, inputs, options);
    const copy = bulk && BulkCopy.ofCaller(bulk);
    // The handler needs it in one piece. What it throws is the error of a region that has several.
    if (isTarget) void copy?.bytes;
    const parts = { service, name, method, served, envelope, run, deadlineMs, copy };
    const reply = await this.#begin(call, parts, path, signal);
    const { errors } = method.collective;
    const failed = await Promise.all(reply.failed.map((failure) => checkedFailure(failure, errors)));
    const result = resultOf({ ...reply, failed }, absent);
    if (result.failed.size === 0) this.#counts.succeeded++;
    else this.#counts.failed++;
    if (result.failed.size === 0) return result;
    if (onFailure !== "partial" || result.ok.length === 0) throw new CollectiveError(path, result);
    return result;
  }

  /** Runs the root's part. The call is open for as long as that takes: receivers remember it. */
  async #begin(
    call: number,
    parts: NodeParts,
    path: string,
    signal: AbortSignal | undefined,
  ): Promise<Reply> {
    this.#counts.started++;
    const { collectiveStarted, collectiveEnded } = channels;
    const about = aboutOf(parts.envelope, path);
    const ranks = parts.envelope.ranks.slice(parts.served === undefined ? 1 : 0);
    if (collectiveStarted.hasSubscribers) collectiveStarted.publish({ ...about, ranks });
    const run = new NodeRun(parts, this.#host);
    this.#open.set(call, run);
    let isCancelled = false;
    const onAbort = (): void => {
      isCancelled = run.stop({ code: "cancelled", message: "the caller gave up", retryable: false });
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      run.start();
      const reply = await run.reply;
      const { ok, failed, repaired, elapsedMs: tookMs } = reply;
      if (collectiveEnded.hasSubscribers) collectiveEnded.publish({ ...about, ok, failed, repaired, tookMs });
      if (isCancelled) {
        this.#counts.failed++;
        throw cancelled(about.method, signal as AbortSignal);
      }
      return reply;
    } finally {
      signal?.removeEventListener("abort", onAbort);
      this.#open.delete(call);
    }
  }

  #assertMayCall(path: string, signal: AbortSignal | undefined): void {
    if (this.#isClosed)
      throw new RpcError({
        code: "unavailable",
        message: `${path}: the group was closed`,
        notExecuted: true,
      });
    const why = this.#members.broken ?? removalOf(this.#members);
    if (why !== undefined) throw why;
    if (signal?.aborted) throw cancelled(path, signal);
  }

  #envelope(
    call: number,
    run: readonly CarriedMember[],
    { input, of }: Inputs,
    { tree, view, onFailure, bulk, checksum }: ResolvedCallOptions,
  ): Envelope {
    const { self, view: current, name } = this.#members;
    const [oldest = call] = this.#open.keys();
    return {
      ...{ group: name, root: this.#root, rootRank: self?.rank, call, oldest, onFailure, input },
      version: current.version,
      isStrict: view === "strict",
      incarnation: self?.incarnation ?? 0,
      ranks: run.map(({ rank }) => rank),
      tree: tree === "auto" ? chooseShape(run.length, this.#costs.message) : tree,
      level: 0,
      marginMs: this.#costs.marginMs,
      ...(of === undefined ? undefined : { inputs: run.map(({ rank }) => of(rank)) }),
      ...(bulk === undefined ? undefined : { region: bulk }),
      ...(checksum === undefined ? undefined : { checksum }),
    };
  }

  #servedOf(service: AnyService, name: string): ServedCollective | undefined {
    const implementation = this.#serve.find((each) => each.service.name === service.name);
    return implementation?.collectives.get(name);
  }

  /** A request of another member. */
  #take(
    served: ServedCollective,
    envelope: Envelope,
    call: CallContext,
    offers: AsyncIterable<number> | undefined,
  ): MaybePromise<Reply> {
    const { root, call: number, oldest, level } = envelope;
    // It came with this call, and from there it is copied.
    const region = envelope.region as RemoteRegion<"read"> | undefined;
    const parent = region && offers && { call, region, offers };
    const found = this.#table.find(root, number, oldest);
    if (typeof found === "object") {
      this.#counts.rejoined++;
      return found.wait(call, level, parent);
    }
    if (found !== "new") return this.#refuse(unknowable[found]);
    const run = runOf(this.#members, envelope);
    if (typeof run === "string") return this.#refuse({ ...refused, message: run });
    const copy = copyFor(this.#members, served, envelope);
    if (copy !== undefined && "code" in copy) return this.#refuse(copy);
    this.#counts.joined++;
    const deadlineMs = performance.now() + call.timeLeftMs;
    const { service, name, method } = served;
    const node = new NodeRun({ service, name, method, served, envelope, run, deadlineMs, copy }, this.#host);
    // Known before it begins: a handler may make the call arrive again.
    this.#table.add(root, number, oldest, node, deadlineMs);
    node.start();
    return node.wait(call, level, parent);
  }

  #refuse(why: Failure): Reply {
    this.#counts.refused++;
    return refusal(why);
  }
}

/** @throws TypeError for an implementation that serves this group already */
export function assertFree(group: string, serve: readonly GroupImplementation[]): void {
  const taken = serve.find(({ hosts }) => hosts.has(group));
  if (taken !== undefined)
    throw new TypeError(
      `joinGroup: "${taken.service.name}" serves the group "${group}" already; close that first`,
    );
}

/** What names a call on the channels. */
const aboutOf = ({ group, root, call }: Envelope, method: string) => ({
  group,
  method,
  id: `${root}-${call}`,
});

const unknowable: Readonly<Record<"ended" | "full", Failure>> = {
  ended: { ...refused, message: "the call has ended", retryable: false },
  full: {
    ...refused,
    code: "resource_exhausted",
    message: "this member takes part in as many calls as it can remember",
  },
};

/** @throws RpcError `invalid_argument` that names the place in `name` */
async function assertFits(
  path: string,
  schema: Schema,
  value: unknown,
  name: "input" | "bulk",
): Promise<void> {
  const parsed = await parse(schema, value, name);
  if ("failure" in parsed) throw new RpcError({ ...parsed.failure, method: path, notExecuted: true });
}

const cancelled = (path: string, signal: AbortSignal): RpcError =>
  new RpcError({
    // As a client's calls have it for `AbortSignal.timeout`.
    code: (signal.reason as Error | undefined)?.name === "TimeoutError" ? "deadline_exceeded" : "cancelled",
    message: `${path}: the caller gave up`,
    method: path,
    cause: signal.reason,
  });

/** A collective without input: its options come first. */
function withoutInput(path: string, call: (input: unknown, options?: object) => unknown): unknown {
  return (options?: object, surplus?: unknown) => {
    if (surplus !== undefined)
      throw new TypeError(`call: ${path} takes no input; its options come in that place`);
    return call(undefined, options);
  };
}
