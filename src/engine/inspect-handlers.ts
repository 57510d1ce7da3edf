import { RpcError } from "../base/errors/rpc-error.ts";
import type { CallMetrics, MethodMetrics } from "../base/observe/call-metrics.ts";
import type { SlowCall } from "../base/observe/channels.ts";
import { systemClock } from "../base/time/clock.ts";
import type { HandlersOf } from "../contract/infer.ts";
import { ownVersion } from "../fabric/rdma/fabrics.ts";
import { principalOf } from "../security/identity.ts";
import type { CallContext } from "../server/call-context.ts";
import { WatchStream } from "../server/watch-stream.ts";
import type { Exchange } from "../session/calls/exchange.ts";
import type { ServedMethod } from "../transfer/control/control-method.ts";
import {
  type EndedCall,
  type EndedCalls,
  type InspectedCalls,
  type InspectedChange,
  type InspectedEngine,
  type InspectedMethod,
  type InspectedPeer,
  type InspectedState,
  type Inspection,
  mostTailedCalls,
} from "./inspect-service.ts";
import { openCalls, sessionName } from "./open-call.ts";
import type { ResolvedEngineOptions } from "./options.ts";
import { levelsOf, type MeasuredParts } from "./stats.ts";

/** The parts of an engine that inspection looks at. */
export interface InspectedParts extends MeasuredParts {
  readonly incarnation: bigint;
  readonly openedMs: number;
  readonly served: MeasuredParts["served"] & { readonly methods: readonly ServedMethod[] };
  readonly ports: MeasuredParts["ports"] & { readonly urls: readonly string[] };
}

export type InspectionHandlers = HandlersOf<typeof Inspection, CallContext>;

const mostMethods = 1000;
const mostPeers = 1000;
const mostCalls = 1000;
/** Streams of inspection that an engine has open at once: each costs something for every call, or every interval. */
const mostStreams = 64;

/** The handlers of `cinnabar.inspect.v1`. Loaded when somebody asks. */
export function inspectionHandlers(
  parts: InspectedParts,
  options: ResolvedEngineOptions,
): InspectionHandlers {
  const streams = new Set<object>();
  return {
    snapshot: (_, call): InspectedEngine => ({
      ...stateOf(parts, permitted(call)),
      version: ownVersion(),
      node: process.versions.node,
      pid: process.pid,
      incarnation: hex(parts.incarnation),
      urls: [...parts.ports.urls],
      options: optionsOf(options),
      ...peersOf(parts.exchanges),
    }),
    watch: ({ everyMs = 1000 }, call) => new Changes(streams, parts, everyMs, call),
    calls: ({ service, minAgeMs = 0 }, call): InspectedCalls => {
      const permits = permitted(call);
      const calls = openCalls(parts.exchanges, parts.wheel).filter(
        ({ method, ageMs }) => ageMs >= minAgeMs && isOf(method, service) && permits(method),
      );
      return {
        incarnation: hex(parts.incarnation),
        calls: calls.slice(0, mostCalls),
        leftOut: Math.max(0, calls.length - mostCalls),
      };
    },
    tail: (filter, call) => new Tail(streams, parts.metrics, filter, call),
  };
}

/** A stream that counts among those of its engine until it ends. */
abstract class LookingStream<T> extends WatchStream<T> {
  readonly #streams: Set<object>;

  constructor(streams: Set<object>, signal: AbortSignal) {
    super(signal);
    this.#streams = streams;
  }

  protected override start(): () => void {
    if (this.#streams.size >= mostStreams)
      throw new RpcError({
        code: "resource_exhausted",
        message: `an engine has at most ${mostStreams} streams of cinnabar.inspect.v1 open`,
        origin: "remote",
      });
    this.#streams.add(this);
    return () => void this.#streams.delete(this);
  }
}

/** The state of an engine: now, and after each interval. */
class Changes extends LookingStream<InspectedChange> {
  readonly #parts: InspectedParts;
  readonly #everyMs: number;
  readonly #permits: (path: string) => boolean;
  /** What each method had at the item before. */
  readonly #seen: SeenMethods = new Map();
  #seq = 0;
  #dueMs = Number.NEGATIVE_INFINITY;
  #cancelTimer: (() => void) | undefined;

  constructor(streams: Set<object>, parts: InspectedParts, everyMs: number, call: CallContext) {
    super(streams, call.signal);
    this.#parts = parts;
    this.#everyMs = everyMs;
    this.#permits = permitted(call);
  }

  protected override start(): () => void {
    const leave = super.start();
    return () => {
      leave();
      this.#cancelTimer?.();
    };
  }

  protected override take(): InspectedChange | undefined {
    const nowMs = systemClock.now();
    if (nowMs < this.#dueMs) {
      this.#cancelTimer?.();
      this.#cancelTimer = systemClock.timer(Math.ceil(this.#dueMs - nowMs), () => this.wake(), true);
      return undefined;
    }
    this.#dueMs = nowMs + this.#everyMs;
    const state = stateOf(this.#parts, this.#permits, this.#seen);
    return { seq: this.#seq++, incarnation: hex(this.#parts.incarnation), ...state };
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
  readonly #metrics: CallMetrics;
  readonly #filter: TailFilter;
  readonly #permits: (path: string) => boolean;
  #calls: EndedCall[] = [];
  #leftOut = 0;
  /** When the second ends that calls are counted in, and how many it has had. */
  #secondEndsMs = 0;
  #inSecond = 0;
  /** Wakes the reader at the end of a second that has left calls out: nothing may follow. */
  #cancelTimer: (() => void) | undefined;

  constructor(streams: Set<object>, metrics: CallMetrics, filter: TailFilter, call: CallContext) {
    super(streams, call.signal);
    this.#metrics = metrics;
    this.#filter = filter;
    this.#permits = permitted(call);
  }

  protected override start(): () => void {
    const leave = super.start();
    const stop = this.#metrics.tail((call) => this.#onEnded(call));
    return () => {
      leave();
      stop();
      this.#cancelTimer?.();
    };
  }

  protected override take(): EndedCalls | undefined {
    if (this.#calls.length === 0 && (this.#leftOut === 0 || this.#cancelTimer !== undefined))
      return undefined;
    const item = { calls: this.#calls, leftOut: this.#leftOut };
    this.#calls = [];
    this.#leftOut = 0;
    return item;
  }

  #onEnded(call: SlowCall): void {
    const { service, slowerThanMs = 0, failed = false, perSecond = mostTailedCalls } = this.#filter;
    if (call.tookMs < slowerThanMs || (failed && call.code === "ok") || !isOf(call.method, service)) return;
    if (!this.#permits(call.method)) return;
    const nowMs = systemClock.now();
    if (nowMs >= this.#secondEndsMs) {
      this.#secondEndsMs = nowMs + 1000;
      this.#inSecond = 0;
    }
    if (this.#inSecond >= perSecond || this.#calls.length >= mostTailedCalls) {
      this.#leftOut++;
      this.#cancelTimer ??= systemClock.timer(Math.ceil(this.#secondEndsMs - nowMs), this.#onSecond, true);
      return;
    }
    this.#inSecond++;
    this.#calls.push({ ...call, atMs: Date.now() });
    this.wake();
  }

  readonly #onSecond = (): void => {
    this.#cancelTimer = undefined;
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

/** Whether a path is one of the service, or of any where none is named. */
function isOf(path: string, service: string | undefined): boolean {
  return service === undefined || path.slice(0, path.lastIndexOf("/")) === service;
}

/** How many calls of each method have ended and are open, when it was told last. */
type SeenMethods = Map<MethodMetrics, { readonly ended: number; readonly inFlight: number }>;

/** `seen`: only methods that have changed since; it is brought up to date. */
function stateOf(
  parts: InspectedParts,
  permits: (path: string) => boolean,
  seen?: SeenMethods,
): InspectedState {
  const { lentBytes, windows, inFlight } = openOf(parts);
  const changed = parts.metrics
    .all()
    .map((metrics) => ({
      metrics,
      ended: metrics.ended,
      inFlight: inFlight[metrics.direction].get(metrics.method) ?? 0,
    }))
    .filter(({ metrics, ended, inFlight }) => {
      const before = seen?.get(metrics) ?? { ended: 0, inFlight: 0 };
      return (ended !== before.ended || inFlight !== before.inFlight) && permits(metrics.method);
    })
    .sort((a, b) => b.ended - a.ended);
  const told = changed.slice(0, mostMethods);
  const methods = told.map(({ metrics, ended, inFlight }): InspectedMethod => {
    seen?.set(metrics, { ended, inFlight });
    return { ...metrics.counts(), inFlight, latencyMs: metrics.latencyMs().toJSON() };
  });
  return {
    atMs: Date.now(),
    upMs: systemClock.now() - parts.openedMs,
    health: parts.health.of() ?? { status: "serving" },
    stats: levelsOf(parts),
    lentBytes,
    windows,
    methods,
    methodsLeftOut: changed.length - told.length,
  };
}

/** What the open calls lend and fill, and how many each method has. */
function openOf({ exchanges }: InspectedParts) {
  let lentBytes = 0;
  const windows = { limit: 0, inFlight: 0, narrowed: 0 };
  const inFlight = { out: new Map<string, number>(), in: new Map<string, number>() };
  const count = (counts: Map<string, number>, method: string) =>
    counts.set(method, (counts.get(method) ?? 0) + 1);
  for (const { outgoing, incoming, session } of exchanges) {
    for (const call of outgoing) {
      lentBytes += call.grantedBytes;
      count(inFlight.out, call.methodPath);
    }
    for (const { method } of incoming) count(inFlight.in, session.served.methods[method]?.path ?? "");
    windows.limit += outgoing.window.limit;
    windows.inFlight += outgoing.usersSize;
    if (outgoing.window.narrowed) windows.narrowed++;
  }
  return { lentBytes, windows, inFlight };
}

function peersOf(exchanges: Iterable<Exchange>): Pick<InspectedEngine, "peers" | "peersLeftOut"> {
  const peers: InspectedPeer[] = [];
  let peersLeftOut = 0;
  for (const { session, outgoing, incoming } of exchanges) {
    const { remote, remoteState } = session;
    if (session.state !== "open" || remote === undefined) continue;
    if (peers.length === mostPeers) {
      peersLeftOut++;
      continue;
    }
    peers.push({
      peer: session.peerName,
      session: sessionName(session),
      agent: remote.agent,
      incarnation: hex(remote.incarnation),
      identity: principalOf(session.identity),
      state: remoteState.drains ? "draining" : remoteState.busy ? "blocked" : "connected",
      calls: { out: outgoing.usersSize, waiting: outgoing.waiting.size, in: incoming.usersSize },
      window: outgoing.window.stats(),
      queuedBytes: session.outbox.queuedBytes,
    });
  }
  return { peers, peersLeftOut };
}

function optionsOf(options: ResolvedEngineOptions): InspectedEngine["options"] {
  const { heartbeatMs, keepaliveMs, maxStallMs, connectTimeoutMs, slowCallMs, measureLatency } = options;
  const { reflection, limits, admission } = options;
  return {
    heartbeatMs,
    ...(keepaliveMs === undefined ? {} : { keepaliveMs }),
    maxStallMs,
    connectTimeoutMs,
    ...(slowCallMs < Number.POSITIVE_INFINITY ? { slowCallMs } : {}),
    measureLatency,
    reflection,
    limits,
    admission,
  };
}

const hex = (incarnation: bigint): string => incarnation.toString(16).padStart(16, "0");

export { Inspection } from "./inspect-service.ts";
