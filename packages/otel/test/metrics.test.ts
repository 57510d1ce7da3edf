import { PrometheusExporter, PrometheusSerializer } from "@opentelemetry/exporter-prometheus";
import { MeterProvider, type MetricProducer } from "@opentelemetry/sdk-metrics";
import * as conventions from "@opentelemetry/semantic-conventions";
import {
  METRIC_RPC_CLIENT_CALL_DURATION,
  METRIC_RPC_SERVER_CALL_DURATION,
} from "@opentelemetry/semantic-conventions";
import { Engine, type EngineOptions, implement, RpcError, service, unary } from "cinnabar";
import type { StatsOptions } from "cinnabar/inspect";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { memoryDevice, serveNbd } from "../../nvme/src/index.ts";
import { NbdClient } from "../../nvme/src/nbd/nbd-client.test-support.ts";
import { command } from "../../nvme/src/nbd/protocol.ts";
import { attribute, statusWord } from "../src/conventions.ts";
import { durationBoundsSeconds, EngineMetrics, type MetricData } from "../src/index.ts";
import type { LanesSource } from "../src/metrics/source.ts";

const Work = service("work.v1", {
  run: unary({ input: z.string(), output: z.string() }),
});
let urls = 0;

async function open(options: EngineOptions = {}) {
  const url = `mem://otel-metrics-${urls++}`;
  const server = await Engine.open({
    listen: url,
    serve: [
      implement(Work, {
        run(input) {
          if (input === "missing") throw new RpcError({ code: "not_found", message: "no such thing" });
          if (input === "broken") throw new RpcError({ code: "data_loss", message: "it is gone" });
          return input;
        },
      }),
    ],
    ...options,
  });
  const client = await Engine.open();
  onTestFinished(async () => {
    await client.close();
    await server.close();
  });
  const peer = await client.connect(url);
  return { server, client, peer, url, api: peer.client(Work) };
}

async function collected(metrics: EngineMetrics): Promise<Map<string, MetricData>> {
  const { resourceMetrics, errors } = await metrics.collect();
  expect(errors).toEqual([]);
  return new Map(resourceMetrics.scopeMetrics[0]?.metrics.map((metric) => [metric.descriptor.name, metric]));
}

/** The values of a metric, by its attributes. */
function valuesOf(all: Map<string, MetricData>, name: string): Record<string, number> {
  const metric = all.get(name);
  if (metric === undefined) throw new Error(`${name} was not collected`);
  return Object.fromEntries(
    metric.dataPoints.map(({ attributes, value }) => [
      Object.values(attributes).join(" "),
      typeof value === "number" ? value : value.count,
    ]),
  );
}

describe("the names", () => {
  it("are those of the stable conventions", () => {
    expect(Object.values(attribute).toSorted()).toEqual(
      [
        conventions.ATTR_RPC_SYSTEM_NAME,
        conventions.ATTR_RPC_METHOD,
        conventions.ATTR_RPC_STATUS_CODE,
        conventions.ATTR_ERROR_TYPE,
        conventions.ATTR_SERVER_ADDRESS,
        conventions.ATTR_SERVER_PORT,
      ].toSorted(),
    );
    expect(statusWord("deadline_exceeded")).toBe("DEADLINE_EXCEEDED");
  });
});

describe("metrics of lanes", () => {
  /** Lanes of which the first is served by the engine in `lane`; undefined: it does not answer. */
  function lanesOf(dispatcher: Engine, lane: { engine: Engine | undefined; deaths: number }): LanesSource {
    return {
      lanes: [],
      async stats(options: StatsOptions) {
        const { engine, deaths } = lane;
        const status = { lane: 0, state: engine === undefined ? "waiting" : "serving", urls: [], deaths };
        const stats = engine?.stats(options);
        const incarnation = engine?.incarnation ?? 0n;
        return { dispatcher: dispatcher.stats(options), lanes: [{ ...status, incarnation, engine: stats }] };
      },
    } as unknown as LanesSource;
  }

  it.each([false, true])("keep the counters of threads that are gone (lanes apart: %s)", async (perLane) => {
    const [dispatcher, first, second] = [await open(), await open(), await open()];
    const lane: { engine: Engine | undefined; deaths: number } = { engine: first.server, deaths: 0 };
    const metrics = new EngineMetrics();
    metrics.add(lanesOf(dispatcher.server, lane), { perLane });
    await first.api.run("a");
    const name = (rest: string) => (perLane ? `0 ${rest}` : rest).trim();
    const calls = async () => {
      const all = await collected(metrics);
      return [
        valuesOf(all, METRIC_RPC_SERVER_CALL_DURATION)[name("cinnabar work.v1/run OK")],
        valuesOf(all, "cinnabar.sessions"),
        valuesOf(all, "cinnabar.lanes"),
      ];
    };
    const sessions = (count: number) => (perLane ? { dispatcher: 1, 0: count } : { "": 1 + count });
    expect(await calls()).toEqual([1, sessions(1), { serving: 1 }]);
    lane.engine = undefined;
    expect(await calls()).toEqual([1, perLane ? { dispatcher: 1 } : { "": 1 }, { waiting: 1 }]);
    lane.engine = second.server;
    lane.deaths = 1;
    await second.api.run("a");
    await second.api.run("b");
    expect(await calls()).toEqual([3, sessions(1), { serving: 1 }]);
    expect(valuesOf(await collected(metrics), "cinnabar.lane.deaths")).toEqual({ "": 1 });
  });
});

it("metrics of the disks of a target are what hosts asked for", async () => {
  const usage = { nqn: "nqn.test:disk", nsid: 1, reads: 3, readBytes: 12_288, writes: 1, writtenBytes: 4096 };
  const metrics = new EngineMetrics();
  metrics.add({
    capsules: {},
    stats: () => ({ controllers: 1, ioQueues: 2, refused: 5, namespaces: [usage] }),
  });
  const all = await collected(metrics);
  expect(valuesOf(all, "cinnabar.disk.operations")).toEqual({
    "nqn.test:disk 1 read": 3,
    "nqn.test:disk 1 write": 1,
  });
  expect(valuesOf(all, "cinnabar.disk.bytes")).toEqual({
    "nqn.test:disk 1 read": 12_288,
    "nqn.test:disk 1 write": 4096,
  });
  for (const [name, value] of [
    ["controllers", 1] as const,
    ["io_queues", 2] as const,
    ["connections.refused", 5] as const,
  ])
    expect(valuesOf(all, `cinnabar.disk.${name}`)).toEqual({ "": value });
});

it("metrics of a server of NBD are the requests and the connections of its clients", async () => {
  const metrics = new EngineMetrics();
  const server = await serveNbd(memoryDevice({ bytes: 2 ** 20 }), { port: 0 });
  onTestFinished(() => server.close());
  const remove = metrics.add(server);
  const client = await NbdClient.open(server.uri);
  await client.read(0, 4096);
  await client.read(8192, 4096);
  expect(await client.errorOf({ type: command.write, bytes: 4096 }, Buffer.alloc(4096))).toBe(0);
  expect(await client.errorOf({ type: command.flush })).toBe(0);
  expect(await client.errorOf({ type: command.read, offset: 2 ** 20, bytes: 4096 })).not.toBe(0);
  const counters = {
    requests: { read: 3, write: 1, other: 1 },
    "requests.failed": { "": 1 },
    "connections.refused": { "": 0 },
  };
  const gauges = {
    "requests.waiting": { "": 0 },
    "requests.waiting.size": { "": 0 },
    connections: { open: 1, handshake: 0 },
  };
  const all = await collected(metrics);
  for (const [name, values] of Object.entries({ ...counters, ...gauges }))
    expect([name, valuesOf(all, `cinnabar.nbd.${name}`)]).toEqual([name, values]);
  expect(all.get("cinnabar.nbd.requests.waiting.size")?.descriptor.unit).toBe("By");
  remove();
  const left = await collected(metrics);
  for (const [name, values] of Object.entries(counters))
    expect([name, valuesOf(left, `cinnabar.nbd.${name}`)]).toEqual([name, values]);
  for (const name of Object.keys(gauges)) expect(left.has(`cinnabar.nbd.${name}`)).toBe(false);
});

describe("metrics of engines", () => {
  it("have the durations of calls by method and code", async () => {
    const { server, client, api } = await open();
    const metrics = new EngineMetrics();
    metrics.add(server);
    metrics.add(client);
    for (const input of ["a", "b", "missing", "broken"]) await api.run.result(input);
    const all = await collected(metrics);
    const methods = { "cinnabar work.v1/run OK": 2 };
    expect(valuesOf(all, METRIC_RPC_CLIENT_CALL_DURATION)).toEqual({
      ...methods,
      "cinnabar work.v1/run NOT_FOUND NOT_FOUND": 1,
      "cinnabar work.v1/run DATA_LOSS DATA_LOSS": 1,
    });
    // What is no fault of the server is no error there.
    expect(valuesOf(all, METRIC_RPC_SERVER_CALL_DURATION)).toEqual({
      ...methods,
      "cinnabar work.v1/run NOT_FOUND": 1,
      "cinnabar work.v1/run DATA_LOSS DATA_LOSS": 1,
    });
    const metric = all.get(METRIC_RPC_SERVER_CALL_DURATION);
    expect(metric?.descriptor).toMatchObject({ unit: "s", valueType: 1 });
    const point = metric?.dataPoints[0]?.value;
    if (typeof point !== "object") throw new Error("it is no histogram");
    expect(point.buckets.boundaries).toEqual(durationBoundsSeconds);
    expect(point.buckets.counts).toHaveLength(durationBoundsSeconds.length + 1);
    expect(point.buckets.counts.reduce((sum, count) => sum + count)).toBe(2);
    const exact = server.latency("work.v1/run", "in", "ok");
    expect(point.sum).toBeCloseTo((exact.mean * exact.count) / 1000, 9);
    expect([point.min, point.max]).toEqual([exact.min / 1000, exact.max / 1000]);
  });

  it("are summed over engines, unless they have attributes of their own", async () => {
    const one = await open();
    const two = await open();
    const metrics = new EngineMetrics();
    metrics.add(one.server);
    metrics.add(two.server);
    for (const { api } of [one, two]) await api.run("a");
    expect(valuesOf(await collected(metrics), METRIC_RPC_SERVER_CALL_DURATION)).toEqual({
      "cinnabar work.v1/run OK": 2,
    });
    expect(valuesOf(await collected(metrics), "cinnabar.sessions")).toEqual({ "": 2 });
    metrics.add(one.client, { attributes: { engine: "one" } });
    metrics.add(two.client, { attributes: { engine: "two" } });
    expect(valuesOf(await collected(metrics), "cinnabar.sessions")).toEqual({ "": 2, one: 1, two: 1 });
    expect(() => metrics.add(one.client)).toThrow("added before");
    expect(() => metrics.add(two.peer, { lanes: true } as never)).toThrow('unknown option "lanes"');
  });

  it("never fall when an engine is read no more", async () => {
    const { server, api } = await open();
    const metrics = new EngineMetrics();
    const remove = metrics.add(server);
    await api.run("a");
    remove();
    remove();
    const all = await collected(metrics);
    expect(valuesOf(all, METRIC_RPC_SERVER_CALL_DURATION)).toEqual({ "cinnabar work.v1/run OK": 1 });
    expect(all.has("cinnabar.session.ends")).toBe(true);
    expect(all.has("cinnabar.sessions")).toBe(false);
    expect(() => metrics.add(server)).toThrow("added before");
  });

  it("stay when an engine has closed", async () => {
    const { server, api } = await open();
    const metrics = new EngineMetrics();
    metrics.add(server);
    await api.run("a");
    await server.close();
    expect(valuesOf(await collected(metrics), METRIC_RPC_SERVER_CALL_DURATION)).toEqual({
      "cinnabar work.v1/run OK": 1,
    });
  });

  it("have health and the states of backends", async () => {
    const { server, peer, client, url } = await open();
    const balanced = await client.connect([url]);
    server.health.set("work.v1", "not_serving");
    const metrics = new EngineMetrics();
    metrics.add(server);
    metrics.add(peer);
    metrics.add(balanced, { attributes: { of: "pool" } });
    const all = await collected(metrics);
    expect(valuesOf(all, "cinnabar.health.serving")).toEqual({ "": 1, "work.v1": 0 });
    expect(valuesOf(all, "cinnabar.backend.state")).toMatchObject({
      [`${url} connected`]: 1,
      [`${url} lost`]: 0,
      [`pool ${url} connected`]: 1,
    });
    await server.drain();
    expect(valuesOf(await collected(metrics), "cinnabar.health.serving")[""]).toBe(0);
  });

  it("count rejections, bytes and memory", async () => {
    const { server, client } = await open();
    const metrics = new EngineMetrics();
    metrics.add(server);
    metrics.add(client);
    using taken = client.pool.take(1000);
    const all = await collected(metrics);
    expect(valuesOf(all, "cinnabar.memory").lent).toBe(client.stats().pool.takenBytes);
    expect(taken.bytes.byteLength).toBe(1000);
    expect(valuesOf(all, "cinnabar.admission.rejections")).toEqual({
      full: 0,
      pushed_out: 0,
      age: 0,
      deadline: 0,
    });
    expect(valuesOf(all, "cinnabar.transfer.io")).toEqual({ get: 0, put: 0 });
  });

  it("go through the SDK's exporter for Prometheus", async () => {
    const { server, api } = await open();
    await api.run("a");
    const metrics = new EngineMetrics();
    metrics.add(server);
    const producer: MetricProducer = metrics;
    const exporter = new PrometheusExporter({ preventServerStart: true, metricProducers: [producer] });
    const provider = new MeterProvider({ readers: [exporter] });
    onTestFinished(() => provider.shutdown());
    const { resourceMetrics, errors } = await exporter.collect();
    expect(errors).toEqual([]);
    const text = new PrometheusSerializer(undefined, false, undefined, false, true).serialize(
      resourceMetrics,
    );
    expect(text).toContain("# TYPE rpc_server_call_duration histogram\n");
    expect(text).toContain(
      'rpc_server_call_duration_bucket{rpc_system_name="cinnabar",rpc_method="work.v1/run",rpc_status_code="OK",le="+Inf"} 1\n',
    );
    expect(text).toContain("# TYPE cinnabar_call_retries_total counter\n");
    expect(text).toContain('cinnabar_calls_in_flight{cinnabar_direction="in"} 0\n');
  });

  it("tell of a source that cannot be read, and keep its counters", async () => {
    const { server, api } = await open();
    await api.run("a");
    const metrics = new EngineMetrics();
    let fails = false;
    metrics.add({
      stats: (options: object) => {
        if (fails) throw new Error("no statistics");
        return server.stats(options);
      },
    } as Engine);
    await collected(metrics);
    fails = true;
    const { errors, resourceMetrics } = await metrics.collect();
    expect(errors).toEqual([new Error("no statistics")]);
    const names = resourceMetrics.scopeMetrics[0]?.metrics.map(({ descriptor }) => descriptor.name);
    expect(names).toContain(METRIC_RPC_SERVER_CALL_DURATION);
    expect(names).not.toContain("cinnabar.sessions");
  });
});
