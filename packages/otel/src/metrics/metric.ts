import type { Attributes, HrTime, ValueType } from "@opentelemetry/api";
import { durationMetric, own } from "../conventions.ts";

/** How values of one series that come from several engines become one. */
export type Combination = "sum" | "max" | "min";

/** A metric of Cinnabar's own. */
export interface Metric {
  readonly name: string;
  readonly unit: string;
  readonly description: string;
  readonly kind: "counter" | "gauge";
  readonly combination: Combination;
  /** The keys of its attributes. */
  readonly attributes: readonly string[];
}

function gauge(
  name: string,
  unit: string,
  description: string,
  attributes: readonly string[] = [],
  combination: Combination = "sum",
): Metric {
  return { name: `cinnabar.${name}`, unit, description, kind: "gauge", combination, attributes };
}

function counter(
  name: string,
  unit: string,
  description: string,
  attributes: readonly string[] = [],
): Metric {
  return { name: `cinnabar.${name}`, unit, description, kind: "counter", combination: "sum", attributes };
}

/** The two metrics of the conventions: histograms of seconds. */
export const durations = {
  out: {
    name: durationMetric.out,
    unit: "s",
    description: "Duration of outgoing calls, with their retries",
    kind: "histogram",
  },
  in: {
    name: durationMetric.in,
    unit: "s",
    description: "Duration of incoming calls, from the request's arrival to the answer's departure",
    kind: "histogram",
  },
} as const;

/** All metrics of Cinnabar's own, each of which is read from the statistics of engines, lanes and peers. */
export const metrics = {
  inFlight: gauge(
    "calls.in_flight",
    "{call}",
    "Calls that have been sent, or arrived, and have not been answered",
    [own.direction],
  ),
  waiting: gauge("calls.waiting", "{call}", "Outgoing calls that wait for a place in a window"),
  waitingSize: gauge("calls.waiting.size", "By", "About how many bytes the inputs of waiting calls hold"),
  admissionRunning: gauge("admission.running", "{request}", "Requests whose handlers run"),
  admissionQueued: gauge("admission.queued", "{request}", "Requests that wait for their turn"),
  admissionRejections: counter(
    "admission.rejections",
    "{request}",
    "Requests that admission control rejected",
    [own.cause],
  ),
  retries: counter("call.retries", "{attempt}", "Attempts after one that failed"),
  retriesWithheld: counter("call.retries_withheld", "{attempt}", "Retries that the retry budget rejected"),
  replays: counter("call.replays", "{request}", "Requests answered from the replay cache"),
  handlersOverdue: counter("handler.overdue", "{handler}", "Handlers that still ran at their deadline"),
  handlersLate: counter("handler.late", "{handler}", "Overdue handlers that have ended since"),
  sessions: gauge("sessions", "{session}", "Sessions"),
  sessionEnds: counter("session.ends", "{session}", "Sessions that ended, or were refused", [own.reason]),
  transferIo: counter("transfer.io", "By", "Bytes that get and put moved", [own.operation]),
  memory: gauge("memory", "By", "Memory that engines hold", [own.kind]),
  lockedMemory: gauge(
    "memory.locked",
    "By",
    "Memory of the process that is pinned for RDMA devices",
    [],
    "max",
  ),
  messagesRefused: counter("messages.refused", "{message}", "Messages that were dropped or lost", [
    own.cause,
  ]),
  stalls: counter("event_loop.stalls", "{stall}", "Times when the event loop of an engine was blocked"),
  stallTime: counter("event_loop.stall.time", "s", "How long the event loop of an engine was blocked"),
  backendState: gauge(
    "backend.state",
    "{backend}",
    "1 for the state that a backend is in, 0 for the others",
    ["server.address", own.state],
    "max",
  ),
  healthServing: gauge(
    "health.serving",
    "{service}",
    "1 while a service serves, else 0; without a name: the whole engine",
    [own.service],
    "min",
  ),
  lanes: gauge("lanes", "{lane}", "Worker lanes by state", [own.state]),
  diskOperations: counter("disk.operations", "{operation}", "Reads and writes that hosts of NVMe asked for", [
    own.disk,
    own.operation,
  ]),
  diskBytes: counter("disk.bytes", "By", "Bytes that hosts of NVMe read and wrote", [
    own.disk,
    own.operation,
  ]),
  diskControllers: gauge("disk.controllers", "{controller}", "Associations with hosts of NVMe"),
  diskQueues: gauge("disk.io_queues", "{queue}", "I/O queues of hosts of NVMe"),
  diskRefused: counter(
    "disk.connections.refused",
    "{connection}",
    "Connections that a target of NVMe refused",
  ),
  nbdRequests: counter("nbd.requests", "{request}", "Requests of clients of NBD", [own.operation]),
  nbdFailed: counter("nbd.requests.failed", "{request}", "Requests of NBD that were answered with an error"),
  nbdWaiting: gauge(
    "nbd.requests.waiting",
    "{request}",
    "Requests of NBD that wait for the rate of their host",
  ),
  nbdWaitingSize: gauge("nbd.requests.waiting.size", "By", "The bytes that waiting requests of NBD ask for"),
  nbdConnections: gauge("nbd.connections", "{connection}", "Connections of clients of NBD", [own.state]),
  nbdRefused: counter("nbd.connections.refused", "{connection}", "Connections that a server of NBD refused"),
  laneDeaths: counter("lane.deaths", "{thread}", "Threads of lanes that exited unexpectedly"),
} as const satisfies Readonly<Record<string, Metric>>;

// What a `MetricProducer` gives, as the interfaces of the SDK have it. They are structural, so this package needs no SDK,
// and fits versions 2 and 3.

interface MetricDescriptor {
  readonly name: string;
  readonly description: string;
  readonly unit: string;
  readonly valueType: ValueType;
}

/** A value of a series at one time. */
export interface DataPoint<T> {
  readonly startTime: HrTime;
  readonly endTime: HrTime;
  readonly attributes: Attributes;
  readonly value: T;
}

/** The value of a point of a histogram. */
export interface HistogramValue {
  readonly buckets: { readonly boundaries: number[]; readonly counts: number[] };
  readonly sum: number;
  readonly count: number;
  readonly min: number;
  readonly max: number;
}

/** `AggregationTemporality.CUMULATIVE` of the SDK. */
export const cumulative = 1;
/** Values of the SDK's `DataPointType`. */
export const dataPointType = { histogram: 0, gauge: 2, sum: 3 } as const;

/** One metric with its points. */
export type MetricData =
  | {
      readonly descriptor: MetricDescriptor;
      readonly aggregationTemporality: typeof cumulative;
      readonly dataPointType: typeof dataPointType.histogram;
      readonly dataPoints: DataPoint<HistogramValue>[];
    }
  | {
      readonly descriptor: MetricDescriptor;
      readonly aggregationTemporality: typeof cumulative;
      readonly dataPointType: typeof dataPointType.gauge;
      readonly dataPoints: DataPoint<number>[];
    }
  | {
      readonly descriptor: MetricDescriptor;
      readonly aggregationTemporality: typeof cumulative;
      readonly dataPointType: typeof dataPointType.sum;
      readonly isMonotonic: boolean;
      readonly dataPoints: DataPoint<number>[];
    };

/** The SDK ignores the resource of a producer: its own counts. So this one is empty. */
export interface NoResource {
  readonly attributes: Attributes;
  merge(other: never): never;
  getRawAttributes(): never[];
}

/** What `collect` gives. */
export interface Collection {
  readonly resourceMetrics: {
    readonly resource: NoResource;
    readonly scopeMetrics: { readonly scope: { readonly name: string }; readonly metrics: MetricData[] }[];
  };
  /** What was thrown while statistics were read. The metrics are without those. */
  readonly errors: unknown[];
}
