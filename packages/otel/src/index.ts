// The entry `cinnabar-otel`: spans by middleware, metrics by a producer for the SDK's readers, and what shows them.

export { type AddOptions, durationBoundsSeconds, EngineMetrics } from "./metrics/engine-metrics.ts";
export type { Collection, DataPoint, HistogramValue, MetricData, NoResource } from "./metrics/metric.ts";
export type { MetricSource } from "./metrics/source.ts";
export { grafanaDashboard } from "./prometheus/dashboard.ts";
export type { NameForm } from "./prometheus/names.ts";
export { prometheusRules } from "./prometheus/rules.ts";
export { type TracingOptions, tracing } from "./tracing.ts";
