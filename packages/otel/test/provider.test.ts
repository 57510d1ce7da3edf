import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { trace } from "@opentelemetry/api";
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-base";
import { Engine, implement, service, unary } from "cinnabar";
import { afterEach, expect, it, onTestFinished, vi } from "vitest";
import type { TracingOptions } from "../src/index.ts";

const Work = service("work.v1", { run: unary() });
let urls = 0;

afterEach(() => trace.disable());

/** A caller with spans. */
async function caller(options?: TracingOptions) {
  // A process warns once: each test has a module of its own.
  vi.resetModules();
  const { tracing } = await import("../src/tracing.ts");
  const url = `mem://otel-provider-${urls++}`;
  const server = await Engine.open({ listen: url, serve: [implement(Work, { run: () => {} })] });
  const client = await Engine.open({ middleware: { client: [tracing(options)] } });
  onTestFinished(async () => {
    await client.close();
    await server.close();
  });
  return (await client.connect(url)).client(Work);
}

function recorded() {
  const exporter = new InMemorySpanExporter();
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  return { provider, names: () => exporter.getFinishedSpans().map(({ name }) => name) };
}

/** The warnings of Cinnabar so far. Node hands them out at the next tick. */
function warnings() {
  const texts: string[] = [];
  const keep = ({ name, message }: Error) => name === "CinnabarWarning" && texts.push(message);
  process.on("warning", keep);
  onTestFinished(() => void process.off("warning", keep));
  return async () => {
    await new Promise(setImmediate);
    return texts;
  };
}

it("finds a provider that is registered after tracing, and warns once of calls before it", async () => {
  const warned = warnings();
  const { run } = await caller();
  expect(await warned()).toEqual([]);
  await run();
  await run();
  expect(await warned()).toEqual([
    expect.stringContaining("no tracer provider is registered: call register()"),
  ]);
  const { provider, names } = recorded();
  trace.setGlobalTracerProvider(provider);
  await run();
  expect(names()).toEqual(["work.v1/run"]);
});

it("finds a provider that another copy of the API has registered", async () => {
  const warned = warnings();
  const folder = mkdtempSync(join(tmpdir(), "cinnabar-otel-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const require = createRequire(import.meta.url);
  const api = join(dirname(require.resolve("@opentelemetry/api")), "../..");
  cpSync(api, join(folder, "api"), { recursive: true });
  const copy = (await import(pathToFileURL(join(folder, "api/build/src/index.js")).href)) as {
    trace: typeof trace;
  };
  expect(copy.trace).not.toBe(trace);
  const { run } = await caller();
  const { provider, names } = recorded();
  copy.trace.setGlobalTracerProvider(provider);
  await run();
  expect(names()).toEqual(["work.v1/run"]);
  expect(await warned()).toEqual([]);
});

it("keeps to the provider that it is given", async () => {
  const warned = warnings();
  const [given, registered] = [recorded(), recorded()];
  const { run } = await caller({ tracerProvider: given.provider });
  await run();
  trace.setGlobalTracerProvider(registered.provider);
  await run();
  expect([given.names(), registered.names()]).toEqual([["work.v1/run", "work.v1/run"], []]);
  expect(await warned()).toEqual([]);
});
