import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { grafanaDashboard, prometheusRules } from "../src/index.ts";
import { durations, metrics } from "../src/metrics/metric.ts";
import { nameOf } from "../src/prometheus/names.ts";

// What Prometheus says of rules and dashboard is in test/telemetry, a stage of its own.

describe("names in Prometheus", () => {
  it.each([
    [durations.in, "rpc_server_call_duration", "rpc_server_call_duration_seconds"],
    [
      metrics.stallTime,
      "cinnabar_event_loop_stall_time_total",
      "cinnabar_event_loop_stall_time_seconds_total",
    ],
    [metrics.transferIo, "cinnabar_transfer_io_total", "cinnabar_transfer_io_bytes_total"],
    [metrics.memory, "cinnabar_memory", "cinnabar_memory_bytes"],
    [metrics.sessions, "cinnabar_sessions", "cinnabar_sessions"],
    [metrics.healthServing, "cinnabar_health_serving", "cinnabar_health_serving"],
  ])("of %o have units in one form", (metric, plain, units) => {
    expect([nameOf(metric, "plain"), nameOf(metric, "units")]).toEqual([plain, units]);
  });

  it("are the same in rules and dashboard, and in one form alone", () => {
    for (const text of [prometheusRules("plain"), grafanaDashboard("plain")]) {
      expect(text).toContain("rpc_server_call_duration_bucket");
      expect(text).not.toContain("_seconds");
    }
    for (const text of [prometheusRules("units"), grafanaDashboard("units")]) {
      expect(text).toContain("rpc_server_call_duration_seconds_bucket");
      expect(text).not.toContain("rpc_server_call_duration_bucket");
    }
  });

  it("are in the dashboard with the job that was chosen", () => {
    const { panels } = JSON.parse(grafanaDashboard("plain")) as { panels: { targets: { expr: string }[] }[] };
    for (const { targets } of panels)
      for (const { expr } of targets) expect(expr.match(/\{job=~"\$job"/g)?.length).toBeGreaterThan(0);
  });
});

describe("the command cinnabar-otel", () => {
  const program = fileURLToPath(new URL("../dist/bin/cinnabar-otel.js", import.meta.url));
  const run = (...args: readonly string[]) => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [program, ...args], { encoding: "utf8" });
    return { status, stdout, stderr };
  };

  it("prints rules and dashboard", () => {
    expect(run("rules")).toEqual({ status: 0, stdout: prometheusRules("plain"), stderr: "" });
    expect(run("dashboard", "--units")).toEqual({ status: 0, stdout: grafanaDashboard("units"), stderr: "" });
  });

  it("says how it is used when it is used otherwise", () => {
    const { status, stdout, stderr } = run("alerts");
    expect([status, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(/^expected rules or dashboard\n\ncinnabar-otel rules \| dashboard/);
  });
});
