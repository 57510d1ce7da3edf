import type { RpcCode } from "../base/errors/code.ts";
import { closedError, RpcError } from "../base/errors/rpc-error.ts";
import { Backoff, backoffMs } from "../base/time/backoff.ts";
import type { Callee, OutgoingCall } from "../call/outgoing-call.ts";
import { RetriedCalls } from "../call/retried-calls.ts";
import type { CallSession, SessionSource } from "../client/session-source.ts";
import type { Exchange } from "../session/calls/exchange.ts";
import type { EngineServices } from "../session/connection/engine-services.ts";
import { Backend, type BackendListener } from "./backend.ts";
import type { ResolvedBalanceOptions } from "./connect-options.ts";
import { hashToNumber } from "./hash.ts";
import type { BackendStats } from "./peer-state.ts";
import { mostWaiting, tooManyWait } from "./reconnector.ts";
import type { Resolver } from "./resolver.ts";

/** Listens to a set as to one backend: the server whose lanes are its members. */
export interface BackendSetListener {
  /** Something changed that decides which backends are ready. */
  onChanged(): void;
  /** A call to one of them that had left has ended. */
  onSettled(code: RpcCode | "ok"): void;
}

/**
 * Backends that stand for each other: the servers of a balanced peer, or the worker lanes of a server. The policy picks
 * a ready backend for each call: among connected ones, otherwise among suspect ones, otherwise among ejected ones. When
 * no backend is ready, a call waits for the first that can be connected. Lost ones are tried again in the background.
 */
export class BackendSet implements SessionSource, BackendListener {
  readonly engine: EngineServices;
  readonly retried = new RetriedCalls();
  readonly name: string;
  readonly #options: ResolvedBalanceOptions;
  readonly #backendAt: (url: string, set: BackendListener) => Backend;
  readonly #listener: BackendSetListener | undefined;
  readonly #backends = new Map<string, Backend>();
  /** No longer named, but with calls in flight. */
  readonly #retiring = new Set<Backend>();
  #stopResolver: (() => void) | undefined;
  /** Those a call may go to; undefined when it must be found out anew. */
  #ready: readonly Backend[] | undefined;
  /** Those of them that serve a method, by its path; and those of the last call, which the next one mostly is like. */
  readonly #serving = new Map<string, readonly Backend[]>();
  #servingLast: readonly Backend[] = [];
  #lastPath = "";
  /** Until when both hold: then an ejection ends. */
  #readyUntilMs = Number.POSITIVE_INFINITY;
  /** Settles with the first backend that is connected. */
  readonly #first: Promise<void>;
  #onFirst!: (error?: unknown) => void;
  #resolved = false;
  /** As they were named last. */
  #urls: readonly string[] = [];
  readonly #backoff: Backoff;
  /** Calls that wait because no backend is ready. */
  #waiting = 0;
  /** The pause before they try again, and how many pauses there were since one of them found a backend. */
  #pausing: Promise<void> | undefined;
  #pauses = 0;
  /** Why calls fail once it is closed. */
  #closeReason: RpcError | undefined;

  /** It begins empty. `members` says, for errors, what its backends are. */
  constructor(
    engine: EngineServices,
    members: string,
    options: ResolvedBalanceOptions,
    backendAt: (url: string, set: BackendListener) => Backend,
    listener?: BackendSetListener,
  ) {
    this.engine = engine;
    this.name = `one of ${members}`;
    this.#options = options;
    this.#backendAt = backendAt;
    this.#listener = listener;
    this.#backoff = new Backoff(engine.clock, true);
    this.#first = new Promise((resolve, reject) => {
      this.#onFirst = (error) => (error === undefined ? resolve() : reject(error));
    });
    this.#first.catch(() => {});
  }

  /** Whether each session is sealed, at every URL that may be named. */
  get isConfidential(): boolean {
    return this.engine.security?.credentials !== undefined;
  }

  /** In the order that they were named. */
  get stats(): BackendStats[] {
    const nowMs = this.engine.clock.now();
    return this.#named().map((backend) => backend.stats(nowMs));
  }

  /** The calls to all backends, those that retire included; without streams. */
  get inFlight(): number {
    let calls = 0;
    for (const { inFlight } of this.#backends.values()) calls += inFlight;
    for (const { inFlight } of this.#retiring) calls += inFlight;
    return calls;
  }

  get streams(): number {
    let open = 0;
    for (const { streams } of this.#backends.values()) open += streams;
    for (const { streams } of this.#retiring) open += streams;
    return open;
  }

  /** Those with backends that retire included. */
  get exchanges(): readonly Exchange[] {
    return [...this.#backends.values(), ...this.#retiring].flatMap(({ exchanges }) => exchanges);
  }

  /** No calls are open at any backend; control requests count. */
  get idle(): boolean {
    return [...this.#backends.values(), ...this.#retiring].every(({ idle }) => idle);
  }

  /** Names of the services of the first backend that is connected. */
  get services(): string[] | undefined {
    return this.#named().find(isReached)?.services;
  }

  get closed(): boolean {
    return this.#closeReason !== undefined;
  }

  get waitForReady(): boolean {
    return this.#options.reconnect.whileLost === "wait";
  }

  get hasOthers(): boolean {
    return this.#backends.size > 1;
  }

  /** Whether any backend has a session, draining or not. */
  get isReached(): boolean {
    return [...this.#backends.values()].some(isReached);
  }

  /** Its backends are those that the resolver names, until it is closed. */
  follow(resolver: Resolver): void {
    this.#stopResolver = resolver.start({
      onUrls: (urls) => this.setUrls(urls),
      onError: (cause) => {
        // A later error leaves the backends as they are.
        if (!this.#resolved) this.#onFirst(unavailable(`${this.name} could not be resolved`, cause));
      },
    });
  }

  /** Its backends are those at these URLs from now on: the others retire, and new ones are connected to. */
  setUrls(urls: readonly string[]): void {
    if (this.closed) return;
    this.#resolved = true;
    this.#urls = urls;
    const wanted = new Set(urls);
    for (const [url, backend] of this.#backends) {
      if (wanted.has(url)) continue;
      this.#backends.delete(url);
      this.#retiring.add(backend);
      backend.retire(() => this.#retiring.delete(backend));
    }
    const tries: Promise<void>[] = [];
    for (const url of wanted) {
      if (this.#backends.has(url)) continue;
      const backend = this.#backendAt(url, this);
      this.#backends.set(url, backend);
      tries.push(backend.connect());
    }
    this.onBackendChanged();
    Promise.any(tries).then(
      () => this.#onFirst(),
      (error: AggregateError) => {
        if (tries.length > 0 || this.#backends.size === 0)
          this.#onFirst(unavailable(this.#noneReached(), error.errors.at(-1)));
      },
    );
  }

  /** Resolves when the first backend is connected, rejects when all have failed once. */
  connected(): Promise<void> {
    return this.#first;
  }

  has(url: string): boolean {
    return this.#backends.has(url);
  }

  /** Whether the backend takes calls: `now`, or `soon` when its first try is under way. */
  takesCalls(url: string, when: "now" | "soon"): boolean {
    const backend = this.#backends.get(url);
    return backend !== undefined && (backend.isOpen || (when === "soon" && backend.isFirstTry));
  }

  /** Connects to the backend now, however long its backoff is. Rejects with the error of that try. */
  async tryNow(url: string): Promise<void> {
    await this.#backends.get(url)?.connect();
  }

  /**
   * The engine of that incarnation at that URL is gone. `certain`: nothing of it touches this side's memory any more.
   */
  onGone(url: string, incarnation: bigint, certain: boolean): void {
    for (const { connection } of [...this.#backends.values(), ...this.#retiring])
      if (connection.url === url) connection.onGone(incarnation, certain);
  }

  session(call: OutgoingCall, input: unknown): CallSession | Promise<CallSession> {
    if (this.#closeReason !== undefined) throw this.#closeReason;
    const callee = call.boundTo;
    if (callee !== undefined) return this.#sessionAt(callee, call, input);
    const pinned = this.#options.pins ? this.#pinned(call, input) : undefined;
    if (pinned !== undefined) return pinned.session(call, input);
    const ready = this.#readyFor(call);
    if (ready.length === 0) return this.#sessionOfAny(call, input);
    return this.#pick(ready, call, input).session(call, input);
  }

  onBackendChanged(): void {
    this.#ready = undefined;
    if (this.#waiting > 0 && this.#readyNow().length > 0) this.#backoff.endAll();
    this.#listener?.onChanged();
  }

  /** Ejects a backend that fails calls, unless too many are ejected already. */
  onBackendSettled(backend: Backend, code: RpcCode | "ok"): void {
    this.#listener?.onSettled(code);
    const verdict = backend.outlier.settled(code);
    if (verdict === undefined || (verdict === "share" && !this.#failsMoreThanOthers(backend))) return;
    const nowMs = this.engine.clock.now();
    let ejected = 1;
    for (const { outlier } of this.#backends.values()) if (outlier.ejected(nowMs)) ejected++;
    const { maxShare } = this.#options.ejection;
    if (backend.outlier.ejected(nowMs) || ejected > maxShare * this.#backends.size) return;
    backend.outlier.eject(nowMs);
    this.onBackendChanged();
  }

  /** Where the others fail as well, the fault is not the backend's. */
  #failsMoreThanOthers({ outlier }: Backend): boolean {
    const others = [...this.#backends.values()].filter((other) => other.outlier !== outlier);
    const share = others.reduce((sum, other) => sum + other.outlier.failureShare, 0) / others.length;
    return share <= outlier.failureShare / 2;
  }

  /** Closes all connections. Calls fail with `reason`. */
  close(reason: RpcError = closedError(this.name)): void {
    if (this.closed) return;
    this.#closeReason = reason;
    this.retried.close(reason);
    this.#stopResolver?.();
    for (const backend of [...this.#backends.values(), ...this.#retiring]) backend.close(reason);
    this.#backoff.endAll();
    this.#onFirst(reason);
  }

  #named(): Backend[] {
    return [...new Set(this.#urls)].flatMap((url) => this.#backends.get(url) ?? []);
  }

  #pick(ready: readonly Backend[], call: OutgoingCall, input: unknown): Backend {
    try {
      const key = this.#options.pins ? undefined : this.#keyOf(call, input);
      const picked: unknown = this.#options.policy.pick(ready, key, call.items !== undefined);
      if (!(picked instanceof Backend)) throw new TypeError("the policy must pick one of the candidates");
      return picked;
    } catch (cause) {
      throw this.#misdirected(cause);
    }
  }

  /** The backend that the call names or that its key belongs to, ready or not. */
  #pinned(call: OutgoingCall, input: unknown): Backend | undefined {
    if (call.lane !== undefined) return this.#numbered(call.lane);
    try {
      const key = this.#keyOf(call, input);
      return key === undefined
        ? undefined
        : this.#backends.get(this.#urls[hashToNumber(key, this.#urls.length)] ?? "");
    } catch (cause) {
      throw this.#misdirected(cause);
    }
  }

  #numbered(number: number): Backend {
    const backend = this.#backends.get(this.#urls[number] ?? "");
    if (backend !== undefined) return backend;
    throw new RpcError({
      code: "failed_precondition",
      message: `${this.name}: there is no lane ${number}, there are ${this.#urls.length}`,
      notExecuted: true,
    });
  }

  #keyOf(call: OutgoingCall, input: unknown): string | undefined {
    const key: unknown = this.#options.keyOf?.({ method: call.methodPath, input });
    if (key === undefined || typeof key === "string") return key;
    throw new TypeError(`keyOf must return a string or undefined, it returned ${typeof key}`);
  }

  #misdirected(cause: unknown): RpcError {
    const message = `${this.name}: keyOf or the policy failed: ${textOf(cause)}`;
    return new RpcError({ code: "internal", message, cause });
  }

  #readyNow(): readonly Backend[] {
    if (
      this.#ready !== undefined &&
      (this.#readyUntilMs === Infinity || this.engine.clock.now() < this.#readyUntilMs)
    )
      return this.#ready;
    const nowMs = this.engine.clock.now();
    const open = this.#open();
    this.#ready = bestOf(open, nowMs);
    this.#serving.clear();
    this.#lastPath = "";
    this.#readyUntilMs = Math.min(
      ...open.map(({ outlier }) => (outlier.ejected(nowMs) ? outlier.untilMs : Number.POSITIVE_INFINITY)),
    );
    return this.#ready;
  }

  #open(): Backend[] {
    return [...this.#backends.values()].filter(({ isOpen, takesCalls }) => isOpen && takesCalls);
  }

  /** Those a call may go to: that have its method, and whose service serves. Built-in services tell of the others. */
  #readyFor(call: OutgoingCall): readonly Backend[] {
    const ready = this.#readyNow();
    const path = call.methodPath;
    if (call.builtin || ready.length === 0) return ready;
    if (path === this.#lastPath) return this.#servingLast;
    let serving = this.#serving.get(path);
    if (serving === undefined) {
      const open = this.#open().filter((backend) => obstacleAt(backend, path) === undefined);
      serving = bestOf(open, this.engine.clock.now());
      if (this.#serving.size >= mostPaths) this.#serving.clear();
      this.#serving.set(path, serving);
    }
    this.#lastPath = path;
    this.#servingLast = serving;
    return serving;
  }

  /** Why no backend that is open serves a service; undefined where one does, or none is open. */
  unwellBecause(service: string): string | undefined {
    let reason: string | undefined;
    for (const backend of this.#open()) {
      reason = backend.unwellBecause(service);
      if (reason === undefined) return undefined;
    }
    return reason;
  }

  /** What of a method all backends that are open lack; "" where one has it, or none is open. */
  lackOf(service: string, method: string): string {
    let lack = "";
    for (const backend of this.#open()) {
      lack = backend.lackOf(service, method);
      if (lack === "") return "";
    }
    return lack;
  }

  /** A call that may have been executed goes to the process that knows, even if others are ready. */
  #sessionAt(callee: Callee, call: OutgoingCall, input: unknown): CallSession | Promise<CallSession> {
    const backend = this.#backendOf(callee);
    return backend?.connection.current === undefined
      ? this.#sessionOfAny(call, input)
      : backend.session(call, input);
  }

  /** The backend that the callee is, or whose lane it is. A retiring one may share its URL with its successor. */
  #backendOf({ url, incarnation }: Callee): Backend | undefined {
    const retiring = [...this.#retiring].find(
      ({ connection }) => connection.url === url && connection.incarnation === incarnation,
    );
    return (
      retiring ??
      this.#backends.get(url) ??
      [...this.#backends.values(), ...this.#retiring].find((backend) => backend.hasLane(url))
    );
  }

  /** Those a call may wait for. */
  #candidates(call: OutgoingCall): readonly Backend[] {
    const callee = call.boundTo;
    if (callee === undefined)
      return [...this.#backends.values()].filter(({ connection }) => connection.state !== "draining");
    const backend = this.#backendOf(callee);
    return backend === undefined ? [] : [backend];
  }

  /** No backend is ready: the first that can be connected. Tried once, or as long as the call waits. */
  #sessionOfAny(call: OutgoingCall, input: unknown): Promise<CallSession> {
    if (this.#waiting >= mostWaiting(this.#options.window)) throw tooManyWait(this.#waiting, this.name);
    this.#waiting++;
    return this.#firstOfAny(call, input).finally(() => this.#waiting--);
  }

  async #firstOfAny(call: OutgoingCall, input: unknown): Promise<CallSession> {
    for (;;) {
      try {
        const candidates = this.#candidates(call);
        const found = await Promise.any(candidates.map((backend) => sessionAt(backend, call, input)));
        this.#pauses = 0;
        return found;
      } catch (error) {
        if (this.#closeReason !== undefined) throw this.#closeReason;
        const { errors } = error as AggregateError;
        const lacking = errors.filter(isLack);
        // What is connected lacks the method, and nothing else is left that could have it.
        if (lacking.length > 0 && lacking.length === errors.length)
          throw failure("unimplemented", `${this.name}: no backend serves "${call.methodPath}"`, lacking[0]);
        if (!this.waitForReady || call.settled || !this.engine.gate.calls)
          throw unavailable(
            this.#unreachable(call, lacking.length > 0),
            errors.findLast((each) => !isLack(each)),
          );
      }
      await this.#pause();
      if (call.settled) throw unavailable(`${this.name}: the call has ended`, undefined);
      if (this.#closeReason !== undefined) throw this.#closeReason;
    }
  }

  /** The pause between tries. The waiting calls share it: their number must not shorten it. A ready backend ends it. */
  #pause(): Promise<void> {
    this.#pausing ??= this.#backoff.pause(backoffMs(this.#pauses++, this.#options.reconnect)).then(() => {
      this.#pausing = undefined;
    });
    return this.#pausing;
  }

  /** `someLack`: backends that were reached do not serve the method. */
  #unreachable(call: OutgoingCall, someLack: boolean): string {
    const callee = call.boundTo;
    if (someLack) return `${this.name}: no backend that serves "${call.methodPath}" can be reached`;
    return callee === undefined
      ? this.#noneReached()
      : `${callee.url} cannot be reached, and it may have executed an earlier attempt`;
  }

  #noneReached(): string {
    return this.#urls.length === 0
      ? "there is no server to connect to: the list of URLs is empty"
      : `${this.name}: no backend can be reached`;
  }
}

/** Connected ones, otherwise suspect ones, otherwise ejected ones: a backend that fails some calls is better than none. */
function bestOf(open: readonly Backend[], nowMs: number): readonly Backend[] {
  const kept = open.filter(({ outlier }) => !outlier.ejected(nowMs));
  const trusted = kept.filter(({ connection }) => connection.state === "connected");
  return trusted.length > 0 ? trusted : kept.length > 0 ? kept : open;
}

/** The session of a call at a backend. What the backend serves is known when it is connected. */
async function sessionAt(backend: Backend, call: OutgoingCall, input: unknown): Promise<CallSession> {
  const session = await backend.session(call, input);
  const obstacle =
    call.builtin || call.boundTo !== undefined ? undefined : obstacleAt(backend, call.methodPath);
  if (obstacle !== undefined) throw obstacle;
  return session;
}

/** Why a backend that is open is no candidate for a method. */
function obstacleAt(backend: Backend, path: string): RpcError | undefined {
  const slash = path.lastIndexOf("/");
  const service = path.slice(0, slash);
  const lack = backend.lackOf(service, path.slice(slash + 1));
  if (lack !== "") return failure("unimplemented", `${backend.name} ${lack}`);
  const reason = backend.unwellBecause(service);
  if (reason === undefined) return undefined;
  const why = reason === "" ? "" : `: ${reason}`;
  return unavailable(`${backend.name} does not serve "${service}" now${why}`, undefined);
}

/** How many methods the set keeps candidates for: names of instances are the user's to make. */
const mostPaths = 1024;

const isLack = (error: unknown): boolean => error instanceof RpcError && error.code === "unimplemented";

const isReached = ({ connection }: Backend): boolean => connection.current !== undefined;

const textOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

const unavailable = (message: string, cause: unknown): RpcError => failure("unavailable", message, cause);

function failure(code: RpcCode, message: string, cause?: unknown): RpcError {
  const why =
    cause === undefined ? "" : `: ${cause instanceof RpcError ? cause.plainMessage : textOf(cause)}`;
  return new RpcError({ code, message: `${message}${why}`, cause });
}
