import type { Attributes, HrTime, ValueType } from "@opentelemetry/api";
import { anything, boolean, type FieldsOf, resolveOptions } from "cinnabar/options";
import {
  type Collection,
  cumulative,
  dataPointType,
  durations,
  type HistogramValue,
  type Metric,
  type MetricData,
  type NoResource,
} from "./metric.ts";
import { type MetricSource, type Reader, readerOf } from "./source.ts";
import { Totals } from "./totals.ts";

/** The options of `EngineMetrics.add`. */
export interface AddOptions {
  /** Attributes of all series of the source. Series with equal attributes are summed. Default: no attributes. */
  readonly attributes?: Attributes | undefined;
  /** Whether the series of lanes have the attribute `cinnabar.lane`. Otherwise they are summed. Default false. */
  readonly perLane?: boolean | undefined;
}

const addFields = {
  attributes: anything<Attributes>(),
  perLane: boolean(false),
} satisfies FieldsOf<AddOptions>;

/**
 * The bounds of the buckets of both duration metrics, in seconds: those that the conventions advise, and nine below them
 * for calls that take microseconds.
 */
export const durationBoundsSeconds: readonly number[] = Object.freeze([
  ...[0.000_005, 0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5],
  ...[0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10],
]);
const boundsMs = durationBoundsSeconds.map((seconds) => seconds * 1000);

/** `ValueType.DOUBLE`, without loading the API. */
const double: ValueType = 1;

/**
 * The metrics of engines, lanes and peers, for any reader of the SDK. It is a `MetricProducer`: statistics are read when
 * metrics are collected, so calls pay nothing. One producer, and so one exporter, has as many engines as a process has.
 *
 * @example
 * import { PrometheusExporter } from "@opentelemetry/exporter-prometheus";
 * import { MeterProvider } from "@opentelemetry/sdk-metrics";
 *
 * const metrics = new EngineMetrics();
 * metrics.add(engine);
 * const exporter = new PrometheusExporter({ port: 9464, metricProducers: [metrics] });
 * new MeterProvider({ readers: [exporter] });
 */
export class EngineMetrics {
  readonly #startTime: HrTime = now();
  readonly #sources = new Map<MetricSource, Source>();
  /** Whatever was added, also when it is read no more: it would count twice. */
  readonly #known = new WeakSet<MetricSource>();
  /** The counters of sources that are read no more: without them the sums would fall. */
  readonly #past = new Totals();

  /**
   * Reads an engine, the lanes of `openLanes`, an `NvmeTarget`, the server of `serveNbd`, or the state of the backends
   * of a peer from now on, until the returned function is called. The counters of a source that is read no more stay in
   * the sums. An engine that has closed is read as long as it was not removed.
   *
   * @example
   * const lanes = await openLanes(new URL("./service.js", import.meta.url), { listen: "tcp://0.0.0.0:7400" });
   * const remove = metrics.add(lanes, { perLane: true });
   *
   * @throws TypeError for bad options, and for a source that was added before.
   */
  add(source: MetricSource, options: AddOptions = {}): () => void {
    const { attributes = {}, perLane } = resolveOptions("add", options, addFields);
    if (this.#known.has(source)) throw new TypeError("add: this source was added before");
    this.#known.add(source);
    const added: Source = { reader: readerOf(source, perLane), attributes, latest: new Totals() };
    this.#sources.set(source, added);
    return () => {
      if (!this.#sources.delete(source)) return;
      this.#past.merge(added.reader.readNow?.() ?? added.latest, attributes, "counters");
    };
  }

  /**
   * What a reader of the SDK calls. A source that cannot be read is an error of the collection. Its counters are those
   * that it had last.
   */
  async collect(): Promise<Collection> {
    const errors: unknown[] = [];
    const totals = new Totals();
    totals.merge(this.#past, {});
    await Promise.all([...this.#sources.values()].map((source) => refresh(source, errors)));
    for (const { latest, attributes } of this.#sources.values()) totals.merge(latest, attributes);
    const times = { startTime: this.#startTime, endTime: now() };
    const metrics = [...durationData(totals, times), ...valueData(totals, times)];
    const scopeMetrics = [{ scope: { name: "cinnabar-otel" }, metrics }];
    return { resourceMetrics: { resource: noResource, scopeMetrics }, errors };
  }
}

interface Source {
  readonly reader: Reader;
  readonly attributes: Attributes;
  latest: Totals;
}

async function refresh(source: Source, errors: unknown[]): Promise<void> {
  try {
    source.latest = source.reader.readNow?.() ?? (await source.reader.read());
  } catch (error) {
    errors.push(error);
    const counters = new Totals();
    counters.merge(source.latest, {}, "counters");
    source.latest = counters;
  }
}

interface Times {
  readonly startTime: HrTime;
  readonly endTime: HrTime;
}

function durationData(totals: Totals, times: Times): MetricData[] {
  return (["out", "in"] as const).flatMap((direction) => {
    const own = [...totals.durations.values()].filter((entry) => entry.direction === direction);
    if (own.length === 0) return [];
    const dataPoints = own.map(({ attributes, latencyMs }) => {
      const cumulated = latencyMs.countsAt(boundsMs);
      const counts = cumulated.map((count, index) => count - (cumulated[index - 1] ?? 0));
      const value: HistogramValue = {
        buckets: {
          boundaries: [...durationBoundsSeconds],
          counts: [...counts, latencyMs.count - (cumulated.at(-1) as number)],
        },
        count: latencyMs.count,
        sum: (latencyMs.mean * latencyMs.count) / 1000,
        min: latencyMs.min / 1000,
        max: latencyMs.max / 1000,
      };
      return { ...times, attributes, value };
    });
    const descriptor = descriptorOf(durations[direction]);
    return [
      {
        descriptor,
        aggregationTemporality: cumulative,
        dataPointType: dataPointType.histogram,
        dataPoints,
      } satisfies MetricData,
    ];
  });
}

function valueData(totals: Totals, times: Times): MetricData[] {
  return [...totals.values].map(([metric, series]) => {
    const dataPoints = [...series.values()].map((point) => ({ ...times, ...point }));
    const common = {
      descriptor: descriptorOf(metric),
      aggregationTemporality: cumulative,
      dataPoints,
    } as const;
    return metric.kind === "counter"
      ? { ...common, dataPointType: dataPointType.sum, isMonotonic: true }
      : { ...common, dataPointType: dataPointType.gauge };
  });
}

function descriptorOf({ name, unit, description }: Pick<Metric, "name" | "unit" | "description">) {
  return { name, unit, description, valueType: double };
}

const noResource: NoResource = {
  attributes: {},
  merge: (other) => other,
  getRawAttributes: () => [],
};

function now(): HrTime {
  const ms = Date.now();
  return [Math.trunc(ms / 1000), (ms % 1000) * 1_000_000];
}
