import type {
  EngineSettings,
  EngineStats,
  HistogramData,
  MethodStats,
  OpenCall,
  SessionStats,
  SlowCall,
} from "cinnabar/inspect";
import { type ServiceHealth, serverStream, service, unary } from "cinnabar/standard";
import { type JsonShape, shaped } from "./json-shape.ts";

/** A method as inspection reports it. All values but `inFlight` are since the engine opened. */
export interface InspectedMethod extends Omit<MethodStats, "latencyMs" | "latencyMsByCode"> {
  /** Calls that are open now: those that were sent (out), or that have not been answered (in). */
  readonly inFlight: number;
  /**
   * The latency of calls that succeeded and that failed. `Histogram.from` reads it, and `Histogram.since` subtracts
   * two.
   */
  readonly latencyMs: HistogramData;
}

/** What the process of an engine uses. Engines of one process report the same. */
export interface InspectedProcess {
  /** Processor time since the process began, of all threads, in microseconds. */
  readonly cpuUs: number;
  /** Bytes of memory that the kernel holds for the process. */
  readonly residentBytes: number;
  /** Bytes of the heap that JavaScript uses. */
  readonly heapBytes: number;
}

/** The state of an engine at one moment. */
export interface InspectedState {
  /** When, in milliseconds since 1970, by the engine's clock. */
  readonly atMs: number;
  /** How long the engine has been open, in milliseconds. */
  readonly upMs: number;
  /** Of Cinnabar, and of Node. */
  readonly version: string;
  readonly node: string;
  readonly process: InspectedProcess;
  readonly health: ServiceHealth;
  readonly stats: Omit<EngineStats, "methods" | "health">;
  /** Bytes of memory that open calls grant to peers. */
  readonly lentBytes: number;
  /** The windows of all sessions together: calls that may be in flight, and calls that are. */
  readonly windows: { readonly limit: number; readonly inFlight: number };
  /** The methods that were called at least once, those with the most calls first, 1,000 at most. */
  readonly methods: readonly InspectedMethod[];
  /** How many methods were left out. */
  readonly methodsLeftOut: number;
}

/** A peer that an engine has a session with. */
export interface InspectedPeer extends Omit<SessionStats, "incarnation"> {
  /** 16 hexadecimal digits. */
  readonly incarnation: string;
}

/** The options of an engine as they are in force. Absent: a time that has no limit. */
export type InspectedOptions = Omit<EngineSettings, "slowCallMs"> &
  Partial<Pick<EngineSettings, "slowCallMs">>;

/** Everything that an engine reports about itself. */
export interface InspectedEngine extends InspectedState {
  readonly pid: number;
  /** 16 hexadecimal digits. */
  readonly incarnation: string;
  readonly urls: readonly string[];
  readonly options: InspectedOptions;
  /** At most 1,000. */
  readonly peers: readonly InspectedPeer[];
  readonly peersLeftOut: number;
}

/** An item of `watch`. */
export interface InspectedChange extends InspectedState {
  /** 0 for the first item, and one more for each that follows. */
  readonly seq: number;
  readonly incarnation: string;
}

/** What `calls` answers. */
export interface InspectedCalls {
  /** The incarnation of the engine that answers, 16 hexadecimal digits. */
  readonly incarnation: string;
  /** The oldest first, at most 1,000. */
  readonly calls: readonly OpenCall[];
  readonly leftOut: number;
}

/** A call that has ended. Its trace is metadata, and so left out. */
export interface EndedCall extends Omit<SlowCall, "traceId"> {
  /** When, in milliseconds since 1970, by the engine's clock. */
  readonly atMs: number;
}

/** An item of `tail`: calls that have ended since the item before. */
export interface EndedCalls {
  readonly calls: readonly EndedCall[];
  /** How many more there were, beyond `perSecond` or faster than the reader. */
  readonly leftOut: number;
}

export const longestWatchMs = 3_600_000;
const shortestWatchMs = 100;
export const mostTailedCalls = 100;

const word: JsonShape = { type: "string" };
const number: JsonShape = { type: "number" };
const list: JsonShape = { type: "array" };
const anyObject: JsonShape = { type: "object" };
const served: JsonShape = {
  type: "string",
  maxLength: 256,
  description: "only calls of this service, with # and the instance where it has one",
};

const shapeOf = (properties: Readonly<Record<string, JsonShape>>, more: JsonShape = {}): JsonShape => ({
  type: "object",
  properties: { ...more.properties, ...properties },
  required: [...(more.required ?? []), ...Object.keys(properties)],
});

const name: JsonShape = { type: "string", maxLength: 1024 };
const direction: JsonShape = { type: "string", enum: ["in", "out"] };
/** A time that a `Date` can hold. */
const moment: JsonShape = { type: "number", minimum: 0, maximum: 8.64e15 };
const count: JsonShape = { type: "number", minimum: 0 };
const listOf = (items: JsonShape): JsonShape => ({ type: "array", items });

const stateShape: JsonShape = shapeOf({
  atMs: moment,
  upMs: count,
  version: name,
  node: name,
  process: shapeOf({ cpuUs: count, residentBytes: count, heapBytes: count }),
  health: {
    type: "object",
    properties: {
      status: { type: "string", enum: ["serving", "not_serving", "draining"] },
      reason: { type: "string", maxLength: 1024 },
    },
    required: ["status"],
  },
  stats: shapeOf({
    counters: shapeOf({
      requestsSucceeded: count,
      requestsFailed: count,
      callsSucceeded: count,
      callsFailed: count,
    }),
    calls: shapeOf({ in: count, out: count, waiting: count }),
    admission: shapeOf({ queued: count }),
    pool: shapeOf({ takenBytes: count }),
    sessions: count,
    pullingBytes: count,
    offeredBytes: count,
    streamBytes: count,
    queuedBytes: count,
    quarantinedBytes: count,
    ports: listOf(shapeOf({ stalls: shapeOf({ totalMs: count }) })),
  }),
  lentBytes: count,
  windows: shapeOf({ limit: count, inFlight: count }),
  methods: listOf(
    shapeOf({
      method: name,
      direction,
      succeeded: count,
      failed: count,
      failures: anyObject,
      inFlight: count,
      latencyMs: shapeOf({ count, buckets: listOf({ type: "array" }) }),
    }),
  ),
  methodsLeftOut: count,
});

const phases = listOf(shapeOf({ phase: name, ms: count }));

const peerShape = shapeOf({
  peer: name,
  session: name,
  incarnation: name,
  agent: name,
  identity: name,
  state: name,
});

const openCallShape = shapeOf({
  direction,
  method: name,
  peer: name,
  session: name,
  callId: count,
  phase: name,
  phases,
  ageMs: count,
  timeLeftMs: count,
  grantedBytes: count,
  transfers: count,
  itemsSent: count,
  itemsReceived: count,
});

const endedCallShape = shapeOf({
  direction,
  method: name,
  peer: name,
  session: name,
  callId: count,
  tookMs: count,
  code: name,
  phases,
  atMs: moment,
});

/**
 * The contract of `inspection(engine)`, by which operators look into an engine. An engine that does not serve it
 * answers `unimplemented`. It never shows inputs, outputs, metadata, messages of errors or keys. It shows only methods
 * and calls, served and made, with a path that `security.allow` lets the caller call.
 *
 * - `snapshot`: everything that is counted, the peers, and the options in force.
 * - `watch`: the state now, and then every `everyMs` (default 1,000). Later items have only the methods that were called
 *   since the item before. A slow reader gets fewer items.
 * - `calls`: open calls, with the time that each has spent in each phase.
 * - `tail`: calls as they end, at most `perSecond` in a second (default 100). A slow reader misses calls, and gets the
 *   number of missed ones.
 *
 * An engine has at most 64 streams of this service open. When they are taken, the session with the most of them loses
 * one to a session with fewer.
 *
 * @example
 * const inspection = peer.client(Inspection);
 * const { stats, peers } = await inspection.snapshot();
 * for await (const { calls, leftOut } of inspection.tail({ failed: true })) console.log(calls, leftOut);
 */
export const Inspection = service("cinnabar.inspect.v1", {
  snapshot: unary({
    output: shaped<InspectedEngine>(
      shapeOf(
        {
          pid: number,
          incarnation: word,
          urls: list,
          options: anyObject,
          peers: listOf(peerShape),
          peersLeftOut: number,
        },
        stateShape,
      ),
    ),
    idempotent: true,
  }),
  watch: serverStream({
    input: shaped<{ readonly everyMs?: number }>({
      type: "object",
      properties: { everyMs: { type: "integer", minimum: shortestWatchMs, maximum: longestWatchMs } },
    }),
    output: shaped<InspectedChange>(shapeOf({ seq: number, incarnation: word }, stateShape)),
    idempotent: true,
    idleTimeoutMs: false,
  }),
  calls: unary({
    input: shaped<{ readonly service?: string; readonly minAgeMs?: number }>({
      type: "object",
      properties: { service: served, minAgeMs: { type: "number", minimum: 0 } },
    }),
    output: shaped<InspectedCalls>(
      shapeOf({ incarnation: word, calls: listOf(openCallShape), leftOut: count }),
    ),
    idempotent: true,
  }),
  tail: serverStream({
    input: shaped<{
      readonly service?: string;
      readonly slowerThanMs?: number;
      readonly failed?: boolean;
      readonly perSecond?: number;
    }>({
      type: "object",
      properties: {
        service: served,
        slowerThanMs: { type: "number", minimum: 0 },
        failed: { type: "boolean", description: "only calls that have failed" },
        perSecond: { type: "integer", minimum: 1, maximum: mostTailedCalls },
      },
    }),
    output: shaped<EndedCalls>(shapeOf({ calls: listOf(endedCallShape), leftOut: count })),
    idempotent: true,
    idleTimeoutMs: false,
  }),
});
