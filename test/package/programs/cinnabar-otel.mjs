// For the installed package cinnabar-otel: the metrics of an engine that was called, and middleware without an SDK.
import assert from "node:assert/strict";
import { trace } from "@opentelemetry/api";
import { Engine, implement, service, unary } from "cinnabar/standard";
import { EngineMetrics, tracing } from "cinnabar-otel";

const Hello = service("hello.v1", { hello: unary() });
const traced = [tracing({ tracerProvider: trace.getTracerProvider() })];
const middleware = { client: traced, server: traced };
const server = await Engine.open({
  listen: "mem://hello",
  serve: [implement(Hello, { hello() {} })],
  middleware,
});
const engine = await Engine.open({ middleware });
const metrics = new EngineMetrics();
metrics.add(server);
await (await engine.connect("mem://hello")).client(Hello).hello();
const { resourceMetrics, errors } = await metrics.collect();
assert.deepEqual(errors, []);
const all = resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics);
const duration = all.find(({ descriptor }) => descriptor.name === "rpc.server.call.duration");
assert.equal(duration?.dataPoints.length, 1);
await engine.close();
await server.close();
console.log("cinnabar-otel works");
