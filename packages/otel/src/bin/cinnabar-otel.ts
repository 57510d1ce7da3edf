#!/usr/bin/env node
import { parseArgs } from "node:util";
import { grafanaDashboard } from "../prometheus/dashboard.ts";
import { prometheusRules } from "../prometheus/rules.ts";

const usage = `cinnabar-otel rules | dashboard [--units]

Prints the alert rules for Prometheus, or the dashboard for Grafana. With --units for names that have units, as a
collector writes them, and Prometheus for what it receives over OTLP: rpc_server_call_duration_seconds_bucket. Without
it for names as the exporter of the JavaScript SDK writes them: rpc_server_call_duration_bucket.
`;

process.exitCode = run();

function run(): number {
  try {
    const { positionals, values } = parseArgs({
      allowPositionals: true,
      options: { units: { type: "boolean" }, help: { type: "boolean" } },
    });
    const form = values.units === true ? "units" : "plain";
    if (values.help === true) process.stdout.write(usage);
    else if (positionals.join(" ") === "rules") process.stdout.write(prometheusRules(form));
    else if (positionals.join(" ") === "dashboard") process.stdout.write(grafanaDashboard(form));
    else throw new Error("expected rules or dashboard");
    return 0;
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n\n${usage}`);
    return 2;
  }
}
