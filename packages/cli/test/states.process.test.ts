import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EngineOptions } from "cinnabar";
import { Inspection } from "cinnabar-inspect";
import { afterEach, describe, expect, it } from "vitest";
import { freshUrl } from "../../../test/processes/support/fabrics.ts";
import { benchServer, Injector } from "../src/bench/server.ts";
import { inProcess, type Running, start } from "./support/command-line.ts";
import {
  Block,
  endAll,
  ends,
  open,
  type Served,
  serve,
  serveApart,
  track,
  Work,
} from "./support/watched-server.ts";

// Each tool at a server that is in each state.

afterEach(endAll);

/** A busy machine may be slow to answer. */
const patient = ["--timeout", "30s"];

/** The tools that ask once, by name: what stands behind the URL. */
const asking = {
  health: [],
  top: ["--once", "--every", "100ms"],
  why: [],
  list: [],
  describe: ["work.v1"],
  ping: ["--count", "1"],
  call: ["work.v1/ping", '"a"'],
  bench: ["--method", "work.v1/ping", "--input", '"a"', "--duration", "200ms", "--warmup", "1ms"],
} as const;

type Asking = keyof typeof asking;

/** Those, and `tail`, which goes on until a call has ended. */
type Tool = Asking | "tail";

const tools = [...(Object.keys(asking) as Asking[]), "tail"] as const;

const argsOf = (tool: Tool, url: string): string[] =>
  tool === "tail" ? ["tail", url, "--count", "1"] : [tool, url, ...asking[tool]];

const ask = (tool: Tool, url: string, ...more: string[]) =>
  inProcess([...argsOf(tool, url), ...patient, ...more]);

/** One line, which says who complains. */
const oneLine = (tool: Tool) => new RegExp(`^cinnabar ${tool}: [^\\n]+\\n$`);

/** A server that serves inspection and reflection. */
const serveAll = (options: EngineOptions = {}) => serve(options, ["inspection", "reflection"]);

/** Makes calls until the work is over: `tail` has something to print, and `top` to count. */
async function whileCalling<T>(call: () => Promise<unknown>, work: Promise<T>): Promise<T> {
  let isOver = false;
  const done = () => {
    isOver = true;
  };
  work.then(done, done);
  while (!isOver) {
    await call().catch(() => {});
    await new Promise(setImmediate);
  }
  return work;
}

describe("a server that serves", () => {
  it.each(tools)("is shown by cinnabar %s", async (tool) => {
    const { url } = await serveAll();
    const work = (await (await open()).connect(url)).client(Work);
    const { status, stdout, stderr } = await whileCalling(() => work.ping("a"), ask(tool, url));
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).not.toBe("");
  });
});

describe("a server that is not there", () => {
  it.each(tools)("is told by cinnabar %s in one line, with status 78", async (tool) => {
    const { status, stdout, stderr } = await ask(tool, "net://127.0.0.1:1");
    expect({ status, stdout }).toEqual({ status: 78, stdout: "" });
    expect(stderr).toMatch(oneLine(tool));
    expect(stderr).toContain("nobody listens there");
  });
});

describe("a server that is killed while it is looked at", () => {
  /** What does not end by itself. */
  const lasting: readonly (readonly string[])[] = [
    ["health", "--watch"],
    ["tail"],
    ["top", "--once", "--every", "60s"],
    ["ping", "--count", "1000000", "--interval", "20ms"],
  ];

  it.each(lasting)("ends cinnabar %s with one line, and status 78", async (command, ...more) => {
    const { child, url } = await serveApart();
    const tool = track(start([command as string, url, ...more.filter((word) => word !== undefined)]));
    await connected(url, 2);
    if (command === "ping") await tool.has(/ping 1: /);
    child.kill("SIGKILL");
    if (command === "ping") {
      // It reports each ping, and goes on: the server may come back.
      await tool.has(/ping \d+: \[unavailable\]/);
      tool.child.kill("SIGINT");
      expect(await tool.ended).toMatchObject({ status: 130, stderr: "" });
      return;
    }
    const { status, stderr } = await tool.ended;
    expect(status).toBe(78);
    expect(stderr).toMatch(oneLine(command as Tool));
  });

  it("makes a load count its failures, and go on with the server that comes back", async () => {
    const server = track(start(["bench", "serve", "--listen", "net://127.0.0.1:0"]));
    const [line = ""] = await server.lines(1);
    const url = line.replace("listening at ", "");
    const terms = ["--concurrency", "4", "--duration", "5s", "--warmup", "1ms", "--json"];
    const loading = track(start(["bench", url, ...terms]));
    await calling(url);
    server.child.kill("SIGKILL");
    await server.ended;
    const again = new Injector({ delayMs: undefined, failShare: 0, random: () => 1 });
    await open({ listen: url, serve: (opening) => [benchServer(again, opening.pool)] });
    const { status, stdout, stderr } = await loading.ended;
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    const report = JSON.parse(stdout);
    expect(Object.keys(report.failures)).toEqual(["unavailable"]);
    expect(report.succeeded + report.failed).toBe(report.started);
    expect(again.calls).toBeGreaterThan(0);
  });
});

/** Resolves when so many others are connected to a server, of which this is one. */
async function connected(url: string, peers: number): Promise<void> {
  const peer = await (await open()).connect(url);
  const asking = peer.client(Inspection);
  while ((await asking.snapshot({ timeoutMs: 60_000 })).peers.length < peers) await new Promise(setImmediate);
}

/** Resolves when a server has been called by others. */
async function calling(url: string): Promise<void> {
  const peer = await (await open()).connect(url);
  const asking = peer.client(Inspection);
  while ((await asking.snapshot({ timeoutMs: 60_000 })).methods.length === 0) await new Promise(setImmediate);
}

describe("a server that has restarted", () => {
  it.each(tools)("is shown by cinnabar %s", async (tool) => {
    const first = await serveAll();
    expect((await inProcess(["ping", first.url, "--count", "1", ...patient])).status).toBe(0);
    await first.engine.close();
    const { url } = await serveAll({ listen: first.url });
    const work = (await (await open()).connect(url)).client(Work);
    const { status, stderr } = await whileCalling(() => work.ping("a"), ask(tool, url));
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  });
});

describe("a server that drains", () => {
  async function draining(): Promise<Served & { readonly ended: Promise<unknown> }> {
    const served = await serveAll();
    const held = (await (await open()).connect(served.url)).client(Work).hold({ timeoutMs: 100_000 });
    held.catch(() => {});
    while (served.engine.calls().length === 0) await new Promise(setImmediate);
    return { ...served, ended: held };
  }

  it("is shown by the tools that are connected: its state, and the calls that it still serves", async () => {
    const { engine, url, release, ended } = await draining();
    const shown = [
      ["health", url, "--watch"],
      ["top", url, "--every", "100ms"],
      ["tail", url, "--count", "1"],
    ].map((args) => track(start(args)));
    const [health, top, tail] = shown as [Running, Running, Running];
    await health.has(/^serving$/m);
    await top.has(/ serving /);
    // The server sends its health without a request.
    while (engine.stats().controlRequests.in < shown.length - 1) await new Promise(setImmediate);
    const drained = engine.drain({ graceMs: 100_000 });
    await health.has(/^draining$/m);
    await top.has(/ draining /);
    release();
    expect(await ended).toBe("done");
    await tail.has(/^\S+ in {2}work\.v1\/hold ok /m);
    expect(await tail.ended).toMatchObject({ status: 0, stderr: "" });
    expect((await drained).aborted).toEqual([]);
    top.child.kill("SIGINT");
    // The server is gone, which a watch of its health says.
    expect([1, 78]).toContain((await health.ended).status);
  });

  it.each(tools)("takes no session of cinnabar %s, which says so", async (tool) => {
    const { engine, url, release } = await draining();
    const drained = engine.drain({ graceMs: 100_000 });
    const { status, stdout, stderr } = await ask(tool, url);
    expect({ status, stdout }).toEqual({ status: 78, stdout: "" });
    expect(stderr).toMatch(oneLine(tool));
    expect(stderr).toContain("the server is closing");
    release();
    expect((await drained).aborted).toEqual([]);
  });
});

describe("a server that is full", () => {
  const shown: Readonly<
    Record<Tool, { readonly status: number; readonly stdout: RegExp; readonly stderr?: RegExp }>
  > = {
    health: { status: 0, stdout: /^serving\n$/ },
    top: { status: 0, stdout: /^work\.v1\/hold +in /m },
    why: { status: 0, stdout: /^work\.v1\/hold: waits in admission control until other handlers end$/m },
    list: { status: 0, stdout: /work\.v1/ },
    describe: { status: 0, stdout: /work\.v1/ },
    ping: { status: 0, stdout: /1 answered/ },
    call: { status: 72, stdout: /^$/, stderr: oneLine("call") },
    bench: { status: 0, stdout: /failed: \d+ resource_exhausted/ },
    tail: { status: 0, stdout: /^\S+ in {2}work\.v1\/ping resource_exhausted / },
  };

  it.each(tools)("is shown by cinnabar %s", async (tool) => {
    const admission = { maxConcurrent: 1, maxQueued: 1, maxQueueMs: 100_000 };
    const { engine, url } = await serveAll({ admission });
    const work = (await (await open()).connect(url)).client(Work, { timeoutMs: 100_000 });
    for (const held of [work.hold(), work.hold()]) held.catch(() => {});
    while (engine.stats().admission.queued < 1) await new Promise(setImmediate);
    const asked = ask(tool, url);
    const { status, stdout, stderr } = await (tool === "tail"
      ? whileCalling(() => work.ping("a"), asked)
      : asked);
    expect({ status, stdout, stderr }).toEqual({
      status: shown[tool].status,
      stdout: expect.stringMatching(shown[tool].stdout),
      stderr: expect.stringMatching(shown[tool].stderr ?? /^$/),
    });
  });
});

describe("a server whose event loop is blocked", () => {
  /** A server in another process that computes, and tools that were connected before. Shared memory has a guard. */
  async function blocked(
    ...commands: string[][]
  ): Promise<{ readonly url: string; readonly shown: Running[] }> {
    const { url } = await serveApart(freshUrl("shm"));
    const shown = commands.map(([command = "", ...more]) => track(start([command, url, ...more])));
    const peer = await (await open()).connect(url);
    const asking = peer.client(Inspection);
    while ((await asking.snapshot({ timeoutMs: 60_000 })).peers.length < 1 + commands.length)
      await new Promise(setImmediate);
    // One that has connected and has received nothing yet shows nothing.
    for (const [index, [command]] of commands.entries())
      if (command !== "tail") await shown[index]?.has(/\bserving\b/);
    await peer.client(Block).block();
    return { url, shown };
  }

  it("is told by the tools that are connected", async () => {
    const { shown } = await blocked(["top", "--every", "100ms"], ["health", "--watch"], ["tail"]);
    const [top, health, tail] = shown as [Running, Running, Running];
    await top.has(/ blocked /);
    await health.has(/^suspect: its event loop does not answer$/m);
    await tail.has(/^cinnabar tail: shm:\S+: its event loop does not answer$/m, "stderr");
    for (const running of shown) running.child.kill("SIGINT");
    for (const running of shown) expect((await running.ended).status).toBe(130);
  });

  it("is told by the tools that come later: it is there, and gives no welcome", async () => {
    const { url } = await blocked();
    for (const tool of tools) {
      const { status, stdout, stderr } = await inProcess([...argsOf(tool, url), "--timeout", "500ms"]);
      expect({ tool, status, stdout }).toEqual({ tool, status: 78, stdout: "" });
      expect(stderr).toMatch(oneLine(tool));
      expect(stderr).toContain("is a server running there? Its event loop may be blocked.");
    }
  });
});

describe("a server with security", () => {
  const key = randomBytes(32);

  function keyFile(name: string, content: Uint8Array): string {
    const folder = mkdtempSync(join(tmpdir(), "cinnabar-"));
    ends.push(() => rmSync(folder, { recursive: true }));
    const file = join(folder, `${name}.psk`);
    writeFileSync(file, content);
    return file;
  }

  const security = { psk: { lookup: (identity: string) => (identity === "me" ? key : undefined) } };

  it.each(tools)("is shown by cinnabar %s to who has the key, and to nobody else", async (tool) => {
    const { url } = await serveAll({ security });
    const file = keyFile("me", key);
    const own = await open({ security: { psk: { identity: "me", key } } });
    const work = (await own.connect(url)).client(Work);
    const known = await whileCalling(() => work.ping("a"), ask(tool, url, "--psk", file));
    expect(known).toMatchObject({ status: 0, stderr: "" });
    const stranger = await ask(tool, url);
    expect(stranger).toMatchObject({ status: 80, stdout: "" });
    expect(stranger.stderr).toMatch(oneLine(tool));
    expect(stranger.stderr).toContain("give --cert, --key and --ca, or --psk, as the server asks");
    const wrong = await ask(tool, url, "--psk", keyFile("me", randomBytes(32)));
    expect(wrong).toMatchObject({ status: 80, stdout: "" });
    expect(wrong.stderr).toMatch(oneLine(tool));
  });

  it.each(tools)("forbids what cinnabar %s asks: one line, and status 71", async (tool) => {
    const { url } = await serveAll({ security: { ...security, allow: () => false } });
    const { status, stdout, stderr } = await ask(tool, url, "--psk", keyFile("me", key));
    // A refusal is an answer, and that is all that a ping asks for. Each peer that has the key receives the health.
    if (tool === "ping" || tool === "health") expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    else {
      expect({ status, stdout }).toEqual({ status: 71, stdout: "" });
      expect(stderr).toMatch(oneLine(tool));
      expect(stderr).toContain("security.allow");
    }
  });
});
