// The entry `cinnabar-otel`: spans by middleware, and metrics by a producer for the SDK's readers.

export { type AddOptions, durationBoundsSeconds, EngineMetrics } from "./metrics/engine-metrics.ts";
export type { Collection, DataPoint, HistogramValue, MetricData, NoResource } from "./metrics/metric.ts";
export type { MetricSource } from "./metrics/source.ts";
export { type TracingOptions, tracing } from "./tracing.ts";
