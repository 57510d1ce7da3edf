// Metrics for Prometheus, without a library: `engine.stats()` as text, served over HTTP.
// Run it with `node build/examples/recipes/metrics.js [url]`.
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Engine, implement, service, unary } from "cinnabar";
import type { EngineStats } from "cinnabar/inspect";
import { z } from "zod";

/** The statistics of an engine in the text format of Prometheus. */
export function prometheusText({ counters, methods, admission, ...stats }: EngineStats): string {
  const lines: string[] = [];
  const add = (name: string, value: number, labels: Readonly<Record<string, string>> = {}) => {
    const text = Object.entries(labels).map(([key, label]) => `${key}=${JSON.stringify(label)}`);
    lines.push(`cinnabar_${name}${text.length > 0 ? `{${text.join(",")}}` : ""} ${value}`);
  };
  // Gauges: what is held now.
  for (const [name, value] of Object.entries(stats)) if (typeof value === "number") add(snake(name), value);
  for (const [name, value] of Object.entries(counters)) add(`${snake(name)}_total`, value);
  add("admission_running", admission.running);
  add("admission_queued", admission.queued);
  for (const [cause, value] of Object.entries(admission.shed)) add("admission_shed_total", value, { cause });
  for (const { method, direction, succeeded, failures, latencyMs } of methods) {
    const labels = { method, direction };
    add("calls_total", succeeded, { ...labels, code: "ok" });
    for (const [code, value] of Object.entries(failures)) add("calls_total", value, { ...labels, code });
    for (const [quantile, value] of [
      ["0.5", latencyMs.p50],
      ["0.99", latencyMs.p99],
    ] as const)
      add("call_seconds", value / 1000, { ...labels, quantile });
    add("call_seconds_count", latencyMs.count, labels);
  }
  return `${lines.join("\n")}\n`;
}

const snake = (name: string) => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

const Clock = service("clock.v1", { now: unary({ output: z.int() }), fail: unary() });
const clock = implement(
  Clock,
  {
    now: () => Date.now(),
    fail() {
      throw new Error("broken");
    },
  },
  {},
);
const url = process.argv[2] ?? `shm://clock-${process.pid}`;
await using server = await Engine.open({ listen: url, serve: [clock], onHandlerError() {} });
await using engine = await Engine.open();
const client = (await engine.connect(server.urls[0] ?? url)).client(Clock);

const http = createServer((_, response) => {
  response.setHeader("content-type", "text/plain; version=0.0.4");
  response.end(prometheusText(server.stats()));
});
http.listen(0, "127.0.0.1");
await once(http, "listening");

for (let i = 0; i < 3; i++) await client.now();
await client.fail.result();
const answer = await fetch(`http://127.0.0.1:${(http.address() as AddressInfo).port}/metrics`);
const lines = (await answer.text()).split("\n");
for (const name of ["cinnabar_sessions ", "cinnabar_requests_started_total", "cinnabar_calls_total"])
  for (const line of lines) if (line.startsWith(name)) console.log(line);
http.close();
http.closeAllConnections();
