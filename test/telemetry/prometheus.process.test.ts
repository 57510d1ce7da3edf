import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { OTLPMetricExporter } from "@opentelemetry/exporter-metrics-otlp-http";
import { PrometheusExporter } from "@opentelemetry/exporter-prometheus";
import { MeterProvider, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";
import { Engine, implement, RpcError, service, unary } from "cinnabar";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import {
  EngineMetrics,
  grafanaDashboard,
  type NameForm,
  prometheusRules,
} from "../../packages/otel/src/index.ts";
import { alerts } from "../../packages/otel/src/prometheus/rules.ts";
import { closed, listening, type OtlpReceiver, openOtlpReceiver } from "./support/otlp-receiver.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const program = (name: string) => {
  const unpacked = join(root, "build/prometheus/usr/bin", name);
  return existsSync(unpacked) ? unpacked : name;
};
const folder = mkdtempSync(join(root, "build/telemetry-"));
const forms: readonly NameForm[] = ["plain", "units"];
const rulesFile = (form: NameForm) => join(folder, `${form}.rules.yml`);

for (const form of forms) writeFileSync(rulesFile(form), prometheusRules(form));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function promtool(...args: readonly string[]): void {
  const { status, stdout, stderr } = spawnSync(program("promtool"), args, { encoding: "utf8" });
  expect(status, stdout + stderr).toBe(0);
}

describe.each(forms)("the rules with %s names", (form) => {
  it("are what promtool accepts", () => {
    promtool("check", "rules", rulesFile(form));
  });

  /** Series for an hour, of which each grows in a minute by so much. `{_unit}` is there in one form alone. */
  const series = (all: Readonly<Record<string, string>>) =>
    Object.entries(all).map(([name, values]) => ({
      series: name.replaceAll(/\{(_\w+)\}/g, form === "units" ? "$1" : ""),
      values: `${values}x60`,
    }));
  const calls = 'rpc_server_call_duration{_seconds}_count{job="a",rpc_method="m/m"';
  const buckets = 'rpc_server_call_duration{_seconds}_bucket{job="a",rpc_method="m/m"';
  const bad = {
    [`${calls},error_type="INTERNAL"}`]: "0+10",
    [`${calls}}`]: "0+10",
    [`${buckets},le="1"}`]: "0+1",
    [`${buckets},le="2.5"}`]: "0+20",
    [`${buckets},le="+Inf"}`]: "0+20",
    'cinnabar_admission_rejections_total{job="a",cinnabar_cause="full"}': "0+1",
    'cinnabar_handler_overdue_total{job="a"}': "0+1",
    'cinnabar_handler_late_total{job="a"}': "0+0",
    'cinnabar_memory{_bytes}{job="a",cinnabar_kind="quarantined"}': "4096+0",
    'cinnabar_event_loop_stall_time{_seconds}_total{job="a",instance="i"}': "0+30",
    'cinnabar_messages_refused_total{job="a",cinnabar_cause="malformed"}': "0+1",
    'cinnabar_health_serving{job="a",cinnabar_service="s"}': "0+0",
    'cinnabar_backend_state{job="a",server_address="u",cinnabar_state="connected"}': "0+0",
    'cinnabar_sessions{job="a"}': "1+0",
  };
  const good = {
    ...bad,
    [`${calls},error_type="INTERNAL"}`]: "0+0",
    [`${buckets},le="1"}`]: "0+20",
    'cinnabar_admission_rejections_total{job="a",cinnabar_cause="full"}': "5+0",
    'cinnabar_handler_late_total{job="a"}': "0+1",
    'cinnabar_memory{_bytes}{job="a",cinnabar_kind="quarantined"}': "0+0",
    'cinnabar_event_loop_stall_time{_seconds}_total{job="a",instance="i"}': "0+1",
    'cinnabar_messages_refused_total{job="a",cinnabar_cause="malformed"}': "5+0",
    'cinnabar_health_serving{job="a",cinnabar_service="s"}': "1+0",
    'cinnabar_backend_state{job="a",server_address="u",cinnabar_state="connected"}': "1+0",
  };
  const scraped = alerts.map(({ name }) => name).filter((name) => name !== "CinnabarNotScraped");

  it.each([
    ["fire where all is bad", bad, scraped],
    ["are silent where all is well", good, []],
    ["tell that nothing is scraped", { 'up{job="a"}': "0+0" }, ["CinnabarNotScraped"]],
  ])("%s", (what, input, firing) => {
    const file = join(folder, `${form}-${firing.length}.test.yml`);
    // JSON is YAML, too.
    writeFileSync(
      file,
      JSON.stringify({
        rule_files: [rulesFile(form)],
        evaluation_interval: "1m",
        tests: [
          {
            name: what,
            interval: "1m",
            input_series: series(input as Readonly<Record<string, string>>),
            promql_expr_test: [
              {
                expr: 'count by (alertname) (ALERTS{alertstate="firing"})',
                eval_time: "50m",
                exp_samples: firing.map((name) => ({ labels: `{alertname="${name}"}`, value: 1 })),
              },
            ],
          },
        ],
      }),
    );
    promtool("test", "rules", file);
  });
});

describe("Prometheus, which scrapes a server that is called", () => {
  const Work = service("work.v1", { run: unary({ input: z.int(), output: z.int(), idempotent: true }) });
  const ends: (() => unknown)[] = [];
  let otlp: OtlpReceiver;
  let base = "";

  interface Sample {
    readonly metric: Readonly<Record<string, string>>;
    readonly value: readonly [number, string];
  }

  const ask = async (path: string) =>
    ((await (await fetch(`${base}/api/v1/${path}`)).json()) as { data: { result: Sample[] } }).data;
  const query = async (expression: string) =>
    (await ask(`query?query=${encodeURIComponent(expression)}`)).result;

  beforeAll(async () => {
    const server = await Engine.open({
      listen: "tcp://127.0.0.1:0",
      serve: [
        implement(Work, {
          run(input) {
            if (input % 3 === 0) throw new RpcError({ code: "unavailable", message: "on purpose" });
            return input;
          },
        }),
      ],
    });
    const client = await Engine.open();
    ends.push(
      () => client.close(),
      () => server.close(),
    );
    const peer = await client.connect(server.urls[0] as string);
    const api = peer.client(Work, { retry: false });
    const metrics = new EngineMetrics();
    for (const source of [server, client, peer]) metrics.add(source);

    const scrape = new PrometheusExporter({ preventServerStart: true, metricProducers: [metrics] });
    otlp = await openOtlpReceiver();
    const push = new PeriodicExportingMetricReader({
      exporter: new OTLPMetricExporter({ url: otlp.url }),
      exportIntervalMillis: 1000,
      exportTimeoutMillis: 1000,
      metricProducers: [metrics],
    });
    const provider = new MeterProvider({ readers: [scrape, push] });
    const page = createServer((request, response) => {
      // Calls go on as long as somebody looks.
      for (let i = 0; i < 30; i++) void api.run.result(i);
      scrape.getMetricsRequestHandler(request, response);
    });
    const target = await listening(page);
    ends.push(
      () => provider.shutdown(),
      () => otlp[Symbol.asyncDispose](),
      () => closed(page),
    );

    const probe = createServer();
    const address = await listening(probe);
    await closed(probe);
    base = `http://${address}`;
    const configuration = {
      global: { scrape_interval: "1s", evaluation_interval: "1s" },
      rule_files: forms.map(rulesFile),
      scrape_configs: [
        { job_name: "plain", static_configs: [{ targets: [target] }] },
        { job_name: "units", static_configs: [{ targets: [otlp.target] }] },
      ],
    };
    const file = join(folder, "prometheus.yml");
    writeFileSync(file, JSON.stringify(configuration));
    promtool("check", "config", file);
    const prometheus = spawn(
      program("prometheus"),
      [
        `--config.file=${file}`,
        `--storage.tsdb.path=${join(folder, "data")}`,
        `--web.listen-address=${address}`,
        "--log.level=warn",
      ],
      { stdio: ["ignore", "ignore", "inherit"] },
    );
    const exited = new Promise((resolve) => prometheus.once("exit", resolve));
    ends.push(() => {
      prometheus.kill();
      return exited;
    });
    // Rates need two samples of each series: those of calls that succeed and fail, on both sides.
    // They were there some scrapes ago.
    const durations = '{__name__=~"rpc_(client|server)_call_duration(_seconds)?_count"}';
    const sampled = `count by (job) (${durations} offset 4s) == 4`;
    await vi.waitFor(async () => expect(await query(sampled)).toHaveLength(2), {
      timeout: 60_000,
      interval: 200,
    });
  });

  afterAll(async () => {
    for (const end of ends.reverse()) await end();
  });

  it("finds both targets well", async () => {
    const up = await query("up");
    expect(Object.fromEntries(up.map(({ metric, value }) => [metric.job, value[1]]))).toEqual({
      plain: "1",
      units: "1",
    });
  });

  it.each(forms)("has data for each expression of the rules with %s names", async (form) => {
    for (const { name, query: expression, range } of alerts) {
      const result = await query(
        expression(form, range, name === "CinnabarNotScraped" ? "" : `job="${form}"`),
      );
      expect(result.length, name).toBeGreaterThan(0);
      for (const { value } of result) expect(Number.isFinite(Number(value[1])), name).toBe(true);
    }
  });

  it.each(forms)("has data for each expression of the dashboard with %s names", async (form) => {
    const { panels } = JSON.parse(grafanaDashboard(form)) as {
      panels: { title: string; targets: { expr: string }[] }[];
    };
    const expressions = panels.flatMap(({ title, targets }) => targets.map(({ expr }) => ({ title, expr })));
    expect(expressions.length).toBeGreaterThan(20);
    for (const { title, expr } of expressions) {
      const asked = expr.replaceAll("$__rate_interval", "1m").replaceAll("$job", form);
      expect((await query(asked)).length, `${title}: ${asked}`).toBeGreaterThan(0);
    }
  });

  it.each(forms)("says what share of calls fails, with %s names", async (form) => {
    const share = alerts.find(({ name }) => name === "CinnabarCallsFail");
    const [sample] = await query(share?.query(form, "1m", `job="${form}"`) ?? "");
    expect(sample?.metric.rpc_method).toBe("work.v1/run");
    expect(Number(sample?.value[1])).toBeCloseTo(1 / 3, 1);
  });

  it("evaluates all rules without an error", async () => {
    const { groups } = (await ask("rules")) as unknown as {
      groups: { rules: { name: string; health: string; lastError?: string }[] }[];
    };
    const rules = groups.flatMap((group) => group.rules);
    expect(rules).toHaveLength(alerts.length * forms.length);
    expect(rules.filter(({ health }) => health === "err")).toEqual([]);
  });
});
