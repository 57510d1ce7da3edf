import type { RpcCode } from "../base/errors/code.ts";
import { closedError, RpcError } from "../base/errors/rpc-error.ts";
import { textOf } from "../base/errors/thrown.ts";
import type { Complete } from "../base/options/options.ts";
import { Backoff, backoffMs } from "../base/time/backoff.ts";
import type { Callee, OutgoingCall } from "../call/outgoing-call.ts";
import { RetriedCalls } from "../call/retried-calls.ts";
import type { SessionSource } from "../client/session-source.ts";
import type { OutgoingCalls } from "../session/calls/outgoing-calls.ts";
import type { EngineServices } from "../session/connection/engine-services.ts";
import type { EjectionOptions, ResolvedBalanceOptions } from "./connect-options.ts";
import { type ConnectionListener, mostWaiting, type PeerConnection, tooManyWait } from "./peer-connection.ts";
import type { BackendStats } from "./peer-state.ts";
import { type Candidate, slowStartWeight } from "./policy.ts";
import type { Resolver } from "./resolver.ts";

/**
 * The backends of a balanced peer: servers of the same services. The policy picks a ready backend for each call: among
 * connected backends, else among suspect ones, else among ejected ones. Without a ready backend, a call waits for the
 * first backend that can be connected. Lost backends are tried again in the background.
 */
export class BackendSet implements SessionSource {
  readonly engine: EngineServices;
  readonly retried = new RetriedCalls();
  readonly name: string;
  readonly #options: ResolvedBalanceOptions;
  readonly #connectionTo: (url: string) => PeerConnection;
  readonly #backends = new Map<string, Backend>();
  /** Backends that are no longer named, but have calls in flight. */
  readonly #retiring = new Set<Backend>();
  #stopResolver: (() => void) | undefined;
  /** The ready backends. Undefined when the list must be computed again. */
  #ready: readonly Backend[] | undefined;
  /**
   * The ready backends that serve a method, by its path; and the list of the last call, because the next call is often
   * alike.
   */
  readonly #serving = new Map<string, readonly Backend[]>();
  #servingLast: readonly Backend[] = [];
  #lastPath = "";
  /** Both lists hold until this time: then an ejection ends. */
  #readyUntilMs = Number.POSITIVE_INFINITY;
  /** Settles when the first backend is connected. */
  readonly #first: Promise<void>;
  #onFirst!: (error?: unknown) => void;
  #resolved = false;
  /** The reason why the resolver has not named a backend yet. */
  #unresolved: RpcError | undefined;
  /** The URLs that were named last. */
  #urls: readonly string[] = [];
  readonly #backoff: Backoff;
  /** The number of calls that wait because no backend is ready. */
  #waiting = 0;
  /** The pause before they try again, and the number of pauses since one of them found a backend. */
  #pausing: Promise<void> | undefined;
  #pauses = 0;
  /** The error of calls after the set is closed. */
  #closeReason: RpcError | undefined;
  readonly #anywhere: Places = {
    backends: () => [...this.#backends.values()].filter(({ connection }) => connection.state !== "draining"),
    unreachable: () => this.#noneReached(),
  };

  /** The set starts without backends. `members` names the kind of its backends in errors. */
  constructor(
    engine: EngineServices,
    members: string,
    options: ResolvedBalanceOptions,
    connectionTo: (url: string) => PeerConnection,
  ) {
    this.engine = engine;
    this.name = `one of ${members}`;
    this.#options = options;
    this.#connectionTo = connectionTo;
    this.#backoff = new Backoff(engine.clock, true);
    this.#first = new Promise((resolve, reject) => {
      this.#onFirst = (error) => (error === undefined ? resolve() : reject(error));
    });
    this.#first.catch(() => {});
  }

  /** Whether every session is sealed, for every URL that may be named. */
  get isConfidential(): boolean {
    return this.engine.security?.credentials !== undefined;
  }

  /** The statistics, in the order in which the backends were named. */
  get stats(): BackendStats[] {
    const nowMs = this.engine.clock.now();
    return [...new Set(this.#urls)].flatMap((url) => this.#backends.get(url)?.stats(nowMs) ?? []);
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

  /** Follows the resolver: it names the backends until the set is closed. */
  follow(resolver: Resolver): void {
    this.#stopResolver = resolver.start({
      onUrls: (urls) => this.setUrls(urls),
      onError: (cause) => {
        // A later error does not change the backends.
        if (this.#resolved) return;
        this.#unresolved = unresolved(this.name, cause);
        this.#onFirst(this.#unresolved);
      },
      onGone: (url, incarnation) => this.#onGone(url, incarnation),
    });
  }

  /** Replaces the URLs: backends without a URL in the list retire, and new backends are connected. */
  setUrls(urls: readonly string[]): void {
    if (this.closed) return;
    this.#resolved = true;
    this.#unresolved = undefined;
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
      const backend = new Backend(this.#connectionTo(url), this.#options, this);
      this.#backends.set(url, backend);
      tries.push(backend.connect());
    }
    this.onBackendChanged();
    if (tries.length > 0) this.#backoff.endAll();
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

  session(call: OutgoingCall, input: unknown): OutgoingCalls | Promise<OutgoingCalls> {
    if (this.#closeReason !== undefined) throw this.#closeReason;
    const callee = call.boundTo;
    if (callee !== undefined) return this.#sessionAmong(this.#calleeAt(callee), call, undefined);
    const key = this.#keyOf(call, input);
    if (key !== undefined && this.#options.pin !== undefined)
      return this.#sessionAmong(this.#pinned(key, this.#options.pin), call, key);
    const ready = this.#readyFor(call);
    return ready.length > 0
      ? this.#pick(ready, key, call.items !== undefined).connection.session(call)
      : this.#sessionOfAny(this.#anywhere, call);
  }

  onBackendChanged(): void {
    this.#ready = undefined;
    if (this.#waiting > 0 && this.#readyNow().length > 0) this.#backoff.endAll();
  }

  /** Ejects a backend that fails calls, unless too many are ejected already. */
  onBackendSettled(backend: Backend, code: RpcCode | "ok"): void {
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

  /** True when the other backends fail less often. Otherwise the fault is not the backend's. */
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

  #onGone(url: string, incarnation: bigint): void {
    for (const { connection } of [...this.#backends.values(), ...this.#retiring])
      if (connection.url === url) connection.onGone(incarnation);
  }

  #pick(ready: readonly Backend[], key: string | undefined, isStream: boolean): Backend {
    try {
      const picked: unknown = this.#options.policy.pick(ready, key, isStream);
      if (picked instanceof Backend) return picked;
      throw new TypeError("the policy must pick one of the candidates");
    } catch (cause) {
      throw this.#misdirected(cause);
    }
  }

  #keyOf(call: OutgoingCall, input: unknown): string | undefined {
    const { keyOf } = this.#options;
    const { key } = call.terms;
    if (key !== undefined || keyOf === undefined) return key;
    try {
      const given: unknown = keyOf({ method: call.methodPath, input });
      if (given === undefined || typeof given === "string") return given;
      throw new TypeError(`keyOf must return a string or undefined, it returned ${typeof given}`);
    } catch (cause) {
      throw this.#misdirected(cause);
    }
  }

  #misdirected(cause: unknown): RpcError {
    if (cause instanceof RpcError) return cause;
    const message = `${this.name}: keyOf, pin or the policy failed: ${textOf(cause)}`;
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
    return [...this.#backends.values()].filter(({ isOpen }) => isOpen);
  }

  /**
   * The backends that a call may use: they have its method, and their service is serving. Built-in services ignore
   * health.
   */
  #readyFor(call: OutgoingCall): readonly Backend[] {
    const ready = this.#readyNow();
    const path = call.methodPath;
    if (call.terms.isBuiltin || ready.length === 0) return ready;
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

  /**
   * A call that may have been executed goes to the process that knows its outcome, even if other backends are ready.
   */
  #calleeAt(callee: Callee): Places {
    return {
      backends: () => {
        const backend = this.#backendOf(callee);
        return backend === undefined ? [] : [backend];
      },
      unreachable: () => `${callee.url} cannot be reached, and it may have executed an earlier attempt`,
    };
  }

  /** Calls of a pinned key go to the key's backends, ready or not. */
  #pinned(key: string, pin: (key: string) => readonly string[]): Places {
    const urls = () => {
      try {
        return pin(key);
      } catch (cause) {
        throw this.#misdirected(cause);
      }
    };
    return {
      backends: () => urls().flatMap((url) => this.#backends.get(url) ?? []),
      unreachable: () => `${this.name}: no backend of the call's key can be reached`,
    };
  }

  /** The session of a call for these backends alone, suspect and ejected ones included. */
  #sessionAmong(
    places: Places,
    call: OutgoingCall,
    key: string | undefined,
  ): OutgoingCalls | Promise<OutgoingCalls> {
    const there = places.backends().filter(({ connection }) => connection.current !== undefined);
    if (there.length === 0) return this.#sessionOfAny(places, call);
    const [only] = there;
    if (there.length === 1) return (only as Backend).connection.session(call);
    return this.#pick(
      bestOf(there, this.engine.clock.now()),
      key,
      call.items !== undefined,
    ).connection.session(call);
  }

  /** The backend of the callee. A retiring backend may share its URL with its successor. */
  #backendOf({ url, incarnation }: Callee): Backend | undefined {
    const retiring = [...this.#retiring].find(
      ({ connection }) => connection.url === url && connection.incarnation === incarnation,
    );
    return retiring ?? this.#backends.get(url);
  }

  /** No backend is ready: uses the first that can be connected. Tries once, or for as long as the call waits. */
  #sessionOfAny(places: Places, call: OutgoingCall): Promise<OutgoingCalls> {
    if (this.#waiting >= mostWaiting(this.#options.window)) throw tooManyWait(this.#waiting, this.name);
    this.#waiting++;
    return this.#firstOfAny(places, call).finally(() => this.#waiting--);
  }

  async #firstOfAny(places: Places, call: OutgoingCall): Promise<OutgoingCalls> {
    for (;;) {
      // A peer that was made without waiting may not have a backend yet.
      if (!this.#resolved) await this.#first.catch(() => {});
      try {
        const found = await Promise.any(
          places.backends().map((backend) => sessionAt(backend, call, places === this.#anywhere)),
        );
        this.#pauses = 0;
        return found;
      } catch (error) {
        if (this.#closeReason !== undefined) throw this.#closeReason;
        if (!(error instanceof AggregateError)) throw error;
        const { errors } = error;
        const lacking = errors.filter(isLack);
        // The connected backends lack the method, and no other backend is left.
        if (lacking.length > 0 && lacking.length === errors.length)
          throw failure("unimplemented", `${this.name}: no backend serves "${call.methodPath}"`, lacking[0]);
        if (!this.waitForReady || call.settled || !this.engine.gate.calls) {
          const lost = errors.findLast((each) => !isLack(each));
          if (lacking.length === 0) throw this.#unresolved ?? unavailable(places.unreachable(), lost);
          throw unavailable(`${this.name}: no backend that serves "${call.methodPath}" can be reached`, lost);
        }
      }
      await this.#pause();
      if (call.settled) throw unavailable(`${this.name}: the call has ended`, undefined);
      if (this.#closeReason !== undefined) throw this.#closeReason;
    }
  }

  /**
   * The pause between tries. The waiting calls share it, so that their number does not shorten it. A ready backend ends
   * it.
   */
  #pause(): Promise<void> {
    this.#pausing ??= this.#backoff.pause(backoffMs(this.#pauses++, this.#options.reconnect)).then(() => {
      this.#pausing = undefined;
    });
    return this.#pausing;
  }

  #noneReached(): string {
    return this.#urls.length === 0
      ? "there is no server to connect to: the list of URLs is empty"
      : `${this.name}: no backend can be reached`;
  }
}

/** The backends that may serve a call. */
interface Places {
  backends(): readonly Backend[];
  /** The error message when none of them can be reached. */
  unreachable(): string;
}

/**
 * Connected backends, else suspect ones, else ejected ones: a backend that fails some calls is better than no backend.
 */
function bestOf(open: readonly Backend[], nowMs: number): readonly Backend[] {
  const kept = open.filter(({ outlier }) => !outlier.ejected(nowMs));
  const trusted = kept.filter(({ connection }) => connection.state === "connected");
  return trusted.length > 0 ? trusted : kept.length > 0 ? kept : open;
}

/** The session of a call at a backend. The services of a backend are known once it is connected. */
async function sessionAt(
  backend: Backend,
  call: OutgoingCall,
  mayGoElsewhere: boolean,
): Promise<OutgoingCalls> {
  const session = await backend.connection.session(call);
  const obstacle = call.terms.isBuiltin || !mayGoElsewhere ? undefined : obstacleAt(backend, call.methodPath);
  if (obstacle !== undefined) throw obstacle;
  return session;
}

/** The error that rules out an open backend for a method. */
function obstacleAt(backend: Backend, path: string): RpcError | undefined {
  const slash = path.lastIndexOf("/");
  const service = path.slice(0, slash);
  const lack = backend.connection.lackOf(service, path.slice(slash + 1));
  if (lack !== "") return failure("unimplemented", `${backend.name} ${lack}`);
  const reason = backend.connection.unhealthyReason(service);
  if (reason === undefined) return undefined;
  const why = reason === "" ? "" : `: ${reason}`;
  return unavailable(`${backend.name} does not serve "${service}" now${why}`, undefined);
}

/**
 * The most methods that the set keeps candidates for. The number of instance names is unbounded, because users choose
 * them.
 */
const mostPaths = 1024;

const isLack = (error: unknown): boolean => error instanceof RpcError && error.code === "unimplemented";

const unavailable = (message: string, cause: unknown): RpcError => failure("unavailable", message, cause);

function failure(code: RpcCode, message: string, cause?: unknown): RpcError {
  const why =
    cause === undefined ? "" : `: ${cause instanceof RpcError ? cause.plainMessage : textOf(cause)}`;
  return new RpcError({ code, message: `${message}${why}`, cause });
}

/** The error of a resolver that failed before it named a backend. It keeps the code of the resolver's error, if any. */
function unresolved(name: string, cause: unknown): RpcError {
  const { code, retryable } = cause instanceof RpcError ? cause : unavailable("", undefined);
  const message = `${name} could not be resolved: ${textOf(cause)}`;
  return new RpcError({ code, retryable, message, cause });
}

/**
 * One member of a set of backends: a connection, and the state that decides whether calls go there. A lost backend is
 * connected again until it is retired.
 */
class Backend implements Candidate, ConnectionListener {
  readonly connection: PeerConnection;
  readonly outlier: Outlier;
  readonly #options: Pick<ResolvedBalanceOptions, "ejection" | "reconnect" | "slowStartMs">;
  readonly #set: BackendSet;
  readonly #offs: (() => void)[];
  #attempt = 0;
  #cancelTry: (() => void) | undefined;
  #connectedMs = Number.NEGATIVE_INFINITY;
  #retired = false;

  /** `set`: the set of the backend. */
  constructor(
    connection: PeerConnection,
    options: Pick<ResolvedBalanceOptions, "ejection" | "reconnect" | "slowStartMs">,
    set: BackendSet,
  ) {
    this.connection = connection;
    this.#options = options;
    this.#set = set;
    this.outlier = new Outlier(options.ejection);
    connection.listener = this;
    const arrived = () => {
      this.#attempt = 0;
      this.#connectedMs = connection.engine.clock.now();
      this.onChanged();
    };
    this.#offs = [
      connection.on("connected", arrived),
      connection.on("back", ({ after }) => (after === "lost" ? arrived() : this.onChanged())),
      connection.on("suspect", () => this.onChanged()),
      connection.on("draining", () => this.onChanged()),
      connection.on("lost", () => {
        this.onChanged();
        this.#tryLater();
      }),
    ];
  }

  get name(): string {
    return this.connection.url;
  }

  get inFlight(): number {
    return this.connection.inFlight;
  }

  get streams(): number {
    return this.connection.streams;
  }

  get weight(): number {
    const { slowStartMs } = this.#options;
    if (slowStartMs === 0) return 1;
    return slowStartWeight(this.connection.engine.clock.now(), this.#connectedMs, slowStartMs);
  }

  /** True while connected, suspected or not. False while the backend drains. */
  get isOpen(): boolean {
    const { state } = this.connection;
    return state === "connected" || state === "suspect";
  }

  stats(nowMs: number): BackendStats {
    const { window: _window, ...stats } = this.connection.stats();
    const { name: url, weight } = this;
    return { url, ...stats, ejected: this.outlier.ejected(nowMs), weight };
  }

  /** A change that may make the backend ready or unready. */
  onChanged(): void {
    if (!this.#retired) this.#set.onBackendChanged();
  }

  onSettled(code: RpcCode | "ok"): void {
    if (!this.#retired) this.#set.onBackendSettled(this, code);
  }

  onClosed(): void {
    this.#leave();
  }

  /**
   * Connects now, and continues trying in the background until it is connected or retired. Rejects with the error of
   * the first try.
   */
  async connect(): Promise<void> {
    this.#cancelTry?.();
    this.#cancelTry = undefined;
    if (this.#retired) return;
    try {
      const session = await this.connection.session();
      // The session may have ended before a listener existed, so its loss is not reported.
      if (session.state !== "open") this.#tryLater();
    } catch (error) {
      this.#tryLater();
      throw error;
    }
  }

  #tryLater(): void {
    if (this.#retired || this.#cancelTry !== undefined) return;
    this.#cancelTry = this.connection.engine.clock.timer(
      backoffMs(this.#attempt++, this.#options.reconnect),
      () => void this.connect().catch(() => {}),
      true,
    );
    this.onChanged();
  }

  /** The backend takes no new calls. It is closed when the calls in flight have ended. */
  retire(onDone: () => void): void {
    this.#leave();
    const closeIfDone = (): void => {
      // Control requests count here, so that borrowed regions of either side are returned first.
      if (this.connection.idle) {
        this.close();
        onDone();
      } else this.#cancelTry = this.connection.engine.clock.timer(retiredLookMs, closeIfDone, true);
    };
    closeIfDone();
  }

  /** Safe to call twice; the first reason counts. */
  close(reason?: RpcError): void {
    this.#leave();
    this.connection.close(reason);
  }

  /** Stops the tries and the listener. The connection stays open. */
  #leave(): void {
    this.#retired = true;
    this.#cancelTry?.();
    this.#cancelTry = undefined;
    for (const off of this.#offs) off();
    this.#set.onBackendChanged();
  }
}

/** The time between checks of a retired backend, until its last call has ended. */
const retiredLookMs = 50;

/** Error codes that blame the server, not the call. */
const serverFailures: ReadonlySet<RpcCode | "ok"> = new Set([
  "unavailable",
  "deadline_exceeded",
  "internal",
  "unknown",
  "resource_exhausted",
  "data_loss",
]);
const longestTimes = 10;

/**
 * The number of calls whose share of failures is judged together. With fewer calls, chance would eject healthy
 * backends.
 */
const judgedCalls = 50;

/**
 * Whether one peer is ejected. Two rules of Envoy's outlier detection, which gRPC has too (gRFC A50):
 * - Failures in a row. A success between forgives them.
 * - The share of failures among the last calls, compared with that of the other backends. It finds a backend that fails
 *   every second call.
 *
 * A time of good behaviour as long as the last ejection forgives one ejection.
 */
export class Outlier {
  readonly #options: Complete<EjectionOptions>;
  #failures = 0;
  /** The numbers of counted calls, and of failures among them. */
  #calls = 0;
  #failed = 0;
  /** The share of failures in the previous count. */
  #lastShare = 0;
  #times = 0;
  /** The end of the last ejection. */
  untilMs = Number.NEGATIVE_INFINITY;

  constructor(options: Complete<EjectionOptions>) {
    this.#options = options;
  }

  ejected(nowMs: number): boolean {
    return nowMs < this.untilMs;
  }

  /** The recent share of failed calls, from 0 to 1. */
  get failureShare(): number {
    return this.#calls < judgedCalls / 2 ? this.#lastShare : this.#failed / this.#calls;
  }

  /** A call to the backend has ended. Returns the verdict: by its share, it is ejected only if the others fail less. */
  settled(code: RpcCode | "ok"): "consecutive" | "share" | undefined {
    // The caller stopped waiting, so the call was neither a success nor a failure.
    if (code === "cancelled") return undefined;
    const { consecutiveFailures, failureShare } = this.#options;
    this.#calls++;
    if (!serverFailures.has(code)) this.#failures = 0;
    else {
      this.#failures++;
      this.#failed++;
    }
    let isOutlier = false;
    if (this.#calls >= judgedCalls) {
      this.#lastShare = this.#failed / this.#calls;
      this.#calls = 0;
      this.#failed = 0;
      isOutlier = failureShare < 1 && this.#lastShare >= failureShare;
    }
    if (this.#failures >= consecutiveFailures) return "consecutive";
    return isOutlier ? "share" : undefined;
  }

  eject(nowMs: number): void {
    const { baseMs } = this.#options;
    if (this.#times > 0 && nowMs > this.untilMs + this.#times * baseMs) this.#times--;
    this.#times = Math.min(this.#times + 1, longestTimes);
    this.#failures = 0;
    this.#calls = 0;
    this.#failed = 0;
    this.untilMs = nowMs + this.#times * baseMs;
  }
}
