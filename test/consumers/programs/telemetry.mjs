// Calls, spans and metrics with version 3 of OpenTelemetry's SDK: prints the spans and some lines for Prometheus.
import { context, propagation, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { PrometheusExporter, PrometheusSerializer } from "@opentelemetry/exporter-prometheus";
import { MeterProvider } from "@opentelemetry/sdk-metrics";
import { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider } from "@opentelemetry/sdk-trace";
import { Engine, implement, RpcError, service, unary } from "cinnabar";
import { EngineMetrics, tracing } from "cinnabar-otel";
import { z } from "zod";

const spans = new InMemorySpanExporter();
const provider = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter: spans })] });
trace.setGlobalTracerProvider(provider);
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
propagation.setGlobalPropagator(new W3CTraceContextPropagator());

const Work = service("work.v1", { run: unary({ input: z.int(), output: z.int(), idempotent: true }) });
let failures = 1;
const work = implement(Work, {
  run(input) {
    if (failures-- > 0) throw new RpcError({ code: "unavailable", message: "later" });
    return input;
  },
});
const middleware = { client: [tracing()], server: [tracing()] };
const server = await Engine.open({ listen: "mem://work", serve: [work], middleware });
const engine = await Engine.open({ middleware });
const metrics = new EngineMetrics();
metrics.add(server);
const exporter = new PrometheusExporter({ preventServerStart: true, metricProducers: [metrics] });
const meters = new MeterProvider({ readers: [exporter] });

const client = (await engine.connect("mem://work")).client(Work, { retry: { baseDelayMs: 1 } });
await client.run(1);
const { resourceMetrics } = await exporter.collect();
const text = new PrometheusSerializer(undefined, false, undefined, true, true).serialize(resourceMetrics);
for (const line of text.split("\n"))
  if (/^rpc_server_call_duration_count|^cinnabar_sessions /.test(line)) console.log(line);
const ended = spans.getFinishedSpans().toSorted((a, b) => b.kind - a.kind);
console.log(new Set(ended.map((span) => span.spanContext().traceId)).size, "trace");
for (const { name, attributes } of ended)
  console.log(name, attributes["rpc.status_code"], attributes["cinnabar.attempts"] ?? "");
await engine.close();
await server.close();
await provider.shutdown();
await meters.shutdown();
