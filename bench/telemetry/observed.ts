import { context, propagation, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import {
  BasicTracerProvider,
  BatchSpanProcessor,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
} from "@opentelemetry/sdk-trace-base";
import type { Engine, EngineMiddleware } from "cinnabar";
import { EngineMetrics, tracing } from "cinnabar-otel";

/**
 * What is observed: nothing; metrics, collected once a second; spans of one call in a hundred; spans of all. Spans go to
 * a batch processor whose exporter drops them.
 */
export type Observed = "off" | "metrics" | "traces1" | "traces100";

export const allObserved: readonly Observed[] = ["off", "metrics", "traces1", "traces100"];

const collectEveryMs = 1_000;

/** The middleware for it. It registers version 2 of OpenTelemetry's SDK. */
export function middlewareFor(observed: Observed): EngineMiddleware {
  if (observed === "off" || observed === "metrics") return {};
  const ratio = observed === "traces1" ? 0.01 : 1;
  const dropping = {
    export: (_spans: unknown, done: (result: { code: number }) => void) => done({ code: 0 }),
    shutdown: async () => {},
  };
  trace.setGlobalTracerProvider(
    new BasicTracerProvider({
      sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(ratio) }),
      spanProcessors: [new BatchSpanProcessor(dropping)],
    }),
  );
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  const traced = [tracing()];
  return { client: traced, server: traced };
}

/** Collects the metrics of an engine once a second, until the returned function is called. */
export function collect(observed: Observed, engine: Engine): () => void {
  if (observed !== "metrics") return () => {};
  const metrics = new EngineMetrics();
  metrics.add(engine);
  const timer = setInterval(() => void metrics.collect(), collectEveryMs);
  return () => clearInterval(timer);
}
