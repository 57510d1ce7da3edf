import type { CallDirection, MethodStats, OpenCall, SlowCall } from "cinnabar/inspect";
import { version } from "cinnabar/inspect";
import { type CallContext, type Engine, type Implementation, implement, RpcError } from "cinnabar/standard";
import {
  type EndedCall,
  type EndedCalls,
  type InspectedCalls,
  type InspectedChange,
  type InspectedEngine,
  type InspectedMethod,
  type InspectedProcess,
  type InspectedState,
  Inspection,
  mostTailedCalls,
} from "./inspection-service.ts";
import { WatchStream } from "./watch-stream.ts";

const mostMethods = 1000;
const mostPeers = 1000;
const mostCalls = 1000;
/** Streams that an engine has open at once: each costs something for every call, or every interval. */
const mostStreams = 64;

/**
 * The service by which operators look into an engine. Serve it beside the others, and allow it to operators alone. It
 * costs nothing while it has no caller.
 *
 * @example
 * const server = await Engine.open({
 *   listen: "tcp://0.0.0.0:7400",
 *   serve: (engine) => [files, inspection(engine)],
 * });
 */
export function inspection(engine: Engine): Implementation {
  const streams = new OpenStreams();
  return implement(Inspection, {
    snapshot: (_, call): InspectedEngine => ({
      ...stateOf(engine, permitted(call)),
      pid: process.pid,
      incarnation: hex(engine.incarnation),
      urls: engine.urls,
      options: optionsOf(engine),
      ...peersOf(engine),
    }),
    watch: ({ everyMs = 1000 }, call) => new Changes(streams, engine, everyMs, call),
    calls({ service, minAgeMs = 0 }, call): InspectedCalls {
      const permits = permitted(call);
      const calls = engine
        .calls()
        .filter(({ method, ageMs }) => ageMs >= minAgeMs && isOf(method, service) && permits(method));
      return {
        incarnation: hex(engine.incarnation),
        calls: calls.slice(0, mostCalls),
        leftOut: Math.max(0, calls.length - mostCalls),
      };
    },
    tail: (filter, call) => new Tail(streams, engine, filter, call),
  });
}

/** The open streams of an engine by the peer that reads them. All peers have the same share of the places. */
class OpenStreams {
  readonly #byPeer = new Map<string, Set<LookingStream<unknown>>>();
  #size = 0;

  /** @throws RpcError `resource_exhausted` when all places are taken, and no peer has more of them than this one. */
  add(peer: string, stream: LookingStream<unknown>): void {
    if (this.#size >= mostStreams) this.#makeRoomFor(peer);
    const own = this.#byPeer.get(peer) ?? new Set();
    this.#byPeer.set(peer, own.add(stream));
    this.#size++;
  }

  delete(peer: string, stream: LookingStream<unknown>): void {
    const own = this.#byPeer.get(peer);
    if (!own?.delete(stream)) return;
    this.#size--;
    if (own.size === 0) this.#byPeer.delete(peer);
  }

  #makeRoomFor(peer: string): void {
    const own = this.#byPeer.get(peer)?.size ?? 0;
    let most = new Set<LookingStream<unknown>>();
    for (const streams of this.#byPeer.values()) if (streams.size > most.size) most = streams;
    if (most.size <= own + 1) throw full();
    [...most].at(-1)?.fail(full());
  }
}

function full(): RpcError {
  return new RpcError({
    code: "resource_exhausted",
    message: `an engine has at most ${mostStreams} streams of cinnabar.inspect.v1 open`,
  });
}

/** A stream that has a place among those of its engine until it ends. */
abstract class LookingStream<T> extends WatchStream<T> {
  readonly #streams: OpenStreams;
  readonly #peer: string;

  constructor(streams: OpenStreams, { signal, peer }: CallContext) {
    super(signal);
    this.#streams = streams;
    this.#peer = peer;
  }

  protected override start(): () => void {
    this.#streams.add(this.#peer, this);
    return () => this.#streams.delete(this.#peer, this);
  }
}

/** The state of an engine: now, and after each interval. */
class Changes extends LookingStream<InspectedChange> {
  readonly #engine: Engine;
  readonly #everyMs: number;
  readonly #permits: (path: string) => boolean;
  /** What each method had at the item before. */
  readonly #seen: SeenMethods = new Map();
  #seq = 0;
  #dueMs = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;

  constructor(streams: OpenStreams, engine: Engine, everyMs: number, call: CallContext) {
    super(streams, call);
    this.#engine = engine;
    this.#everyMs = everyMs;
    this.#permits = permitted(call);
  }

  protected override start(): () => void {
    const leave = super.start();
    return () => {
      leave();
      clearTimeout(this.#timer);
    };
  }

  protected override take(): InspectedChange | undefined {
    const nowMs = performance.now();
    if (nowMs < this.#dueMs) {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.wake(), Math.ceil(this.#dueMs - nowMs)).unref();
      return undefined;
    }
    this.#dueMs = nowMs + this.#everyMs;
    const state = stateOf(this.#engine, this.#permits, this.#seen);
    return { seq: this.#seq++, incarnation: hex(this.#engine.incarnation), ...state };
  }
}

/** What a caller wants to see of the calls that end. */
interface TailFilter {
  readonly service?: string;
  readonly slowerThanMs?: number;
  readonly failed?: boolean;
  readonly perSecond?: number;
}

/** Calls as they end. It holds a bounded number of those that the reader has not taken, and counts the others. */
class Tail extends LookingStream<EndedCalls> {
  readonly #engine: Engine;
  readonly #filter: TailFilter;
  readonly #permits: (path: string) => boolean;
  #calls: EndedCall[] = [];
  #leftOut = 0;
  /** When the second ends that calls are counted in, and how many it has had. */
  #secondEndsMs = 0;
  #inSecond = 0;
  /** Wakes the reader at the end of a second that has left calls out: nothing may follow. */
  #timer: NodeJS.Timeout | undefined;

  constructor(streams: OpenStreams, engine: Engine, filter: TailFilter, call: CallContext) {
    super(streams, call);
    this.#engine = engine;
    this.#filter = filter;
    this.#permits = permitted(call);
  }

  protected override start(): () => void {
    const leave = super.start();
    const stop = this.#engine.on("callEnded", (call) => this.#onEnded(call));
    return () => {
      leave();
      stop();
      clearTimeout(this.#timer);
    };
  }

  protected override take(): EndedCalls | undefined {
    if (this.#calls.length === 0 && (this.#leftOut === 0 || this.#timer !== undefined)) return undefined;
    const item = { calls: this.#calls, leftOut: this.#leftOut };
    this.#calls = [];
    this.#leftOut = 0;
    return item;
  }

  #onEnded({ traceId: _, ...call }: SlowCall): void {
    const { service, slowerThanMs = 0, failed = false, perSecond = mostTailedCalls } = this.#filter;
    if (call.tookMs < slowerThanMs || (failed && call.code === "ok") || !isOf(call.method, service)) return;
    if (!this.#permits(call.method)) return;
    const nowMs = performance.now();
    if (nowMs >= this.#secondEndsMs) {
      this.#secondEndsMs = nowMs + 1000;
      this.#inSecond = 0;
    }
    if (this.#inSecond >= perSecond || this.#calls.length >= mostTailedCalls) {
      this.#leftOut++;
      this.#timer ??= setTimeout(this.#onSecond, Math.ceil(this.#secondEndsMs - nowMs)).unref();
      return;
    }
    this.#inSecond++;
    this.#calls.push({ ...call, atMs: Date.now() });
    this.wake();
  }

  readonly #onSecond = (): void => {
    this.#timer = undefined;
    this.wake();
  };
}

/** Asks `allow` once for each path: a stream may ask for many calls. */
function permitted(call: CallContext): (path: string) => boolean {
  const known = new Map<string, boolean>();
  return (path) => {
    let permits = known.get(path);
    if (permits === undefined) {
      permits = call.permits(path);
      known.set(path, permits);
    }
    return permits;
  };
}

/** Whether a path belongs to the service, or any path if no service is named. */
function isOf(path: string, service: string | undefined): boolean {
  return service === undefined || path.slice(0, path.lastIndexOf("/")) === service;
}

/** How many calls of each method had ended and were open at the last report. By direction and method. */
type SeenMethods = Map<string, { readonly ended: number; readonly inFlight: number }>;

/** `seen`: only methods that have changed since; it is brought up to date. */
function stateOf(engine: Engine, permits: (path: string) => boolean, seen?: SeenMethods): InspectedState {
  const { methods: counted, health: _, ...stats } = engine.stats();
  const calls = engine.calls();
  const changed = methodsOf(counted, calls)
    .filter(([key, { method, succeeded, failed, inFlight }]) => {
      const before = seen?.get(key) ?? { ended: 0, inFlight: 0 };
      return (succeeded + failed !== before.ended || inFlight !== before.inFlight) && permits(method);
    })
    .sort(([, a], [, b]) => b.succeeded + b.failed - a.succeeded - a.failed);
  const told = changed.slice(0, mostMethods);
  const methods = told.map(([key, method]): InspectedMethod => {
    const { succeeded, failed, inFlight } = method;
    seen?.set(key, { ended: succeeded + failed, inFlight });
    return { ...method, latencyMs: engine.latency(method.method, method.direction).toJSON() };
  });
  const windows = { limit: 0, inFlight: 0 };
  for (const { window, calls } of engine.sessions()) {
    windows.limit += window.limit;
    windows.inFlight += calls.out;
  }
  return {
    atMs: Date.now(),
    upMs: engine.upMs,
    version: version(),
    node: process.versions.node,
    process: processOf(),
    health: engine.health.of() ?? { status: "serving" },
    stats,
    lentBytes: calls.reduce((sum, { grantedBytes }) => sum + grantedBytes, 0),
    windows,
    methods,
    methodsLeftOut: changed.length - told.length,
  };
}

function processOf(): InspectedProcess {
  const { user, system } = process.cpuUsage();
  const { rss, heapUsed } = process.memoryUsage();
  return { cpuUs: user + system, residentBytes: rss, heapBytes: heapUsed };
}

/** The methods of which calls have ended or are open, by direction and method. */
function methodsOf(
  counted: readonly MethodStats[],
  calls: readonly OpenCall[],
): [key: string, Omit<InspectedMethod, "latencyMs">][] {
  const inFlight = new Map<string, number>();
  for (const { direction, method, callId } of calls) {
    // Its request has not left.
    if (callId === 0) continue;
    const key = keyOf(direction, method);
    inFlight.set(key, (inFlight.get(key) ?? 0) + 1);
  }
  const methods = new Map<string, Omit<InspectedMethod, "latencyMs">>();
  for (const { latencyMs: _, ...counts } of counted) {
    const key = keyOf(counts.direction, counts.method);
    methods.set(key, { ...counts, inFlight: inFlight.get(key) ?? 0 });
  }
  for (const { direction, method } of calls) {
    const key = keyOf(direction, method);
    const open = inFlight.get(key);
    if (open !== undefined && !methods.has(key))
      methods.set(key, { method, direction, succeeded: 0, failed: 0, failures: {}, inFlight: open });
  }
  return [...methods];
}

const keyOf = (direction: CallDirection, method: string): string => `${direction} ${method}`;

function peersOf(engine: Engine): Pick<InspectedEngine, "peers" | "peersLeftOut"> {
  const sessions = engine.sessions();
  const peers = sessions
    .slice(0, mostPeers)
    .map(({ incarnation, ...session }) => ({ ...session, incarnation: hex(incarnation) }));
  return { peers, peersLeftOut: sessions.length - peers.length };
}

function optionsOf(engine: Engine): InspectedEngine["options"] {
  const { slowCallMs, ...options } = engine.options;
  return slowCallMs < Number.POSITIVE_INFINITY ? { ...options, slowCallMs } : options;
}

const hex = (incarnation: bigint): string => incarnation.toString(16).padStart(16, "0");
