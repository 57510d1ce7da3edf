import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { implement, service, unary } from "cinnabar";
import { Inspection, inspection } from "cinnabar-inspect";
import { afterEach, describe, expect, it } from "vitest";
import { type Ended, inProcess, program, start } from "./support/command-line.ts";
import {
  Block,
  endAll,
  ends,
  open,
  secret,
  serve,
  serveApart,
  track,
  Work,
} from "./support/watched-server.ts";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const env = { ...process.env, NODE_OPTIONS: "" };

afterEach(endAll);

/** `cinnabar ARGUMENTS` in this process. A busy machine may be slow to answer. */
const cinnabar = (...args: string[]): Promise<Ended> => inProcess([...args, "--timeout", "30s"]);

/** `cinnabar ARGUMENTS` while it runs. */
const running = (...args: string[]) => track(start(args));

describe("cinnabar top", () => {
  it("prints one interval as JSON, with rates, percentiles and open calls by method", {
    timeout: 60_000,
  }, async () => {
    const { engine, url } = await serve();
    const client = await open();
    const work = (await client.connect(url)).client(Work);
    const held = work.hold({ timeoutMs: 60_000 });
    held.catch(() => {});
    const looked = cinnabar("top", url, "--once", "--json", "--every", "500ms");
    let isOver = false;
    void looked.then(() => {
      isOver = true;
    });
    // As long as it looks.
    while (!isOver) {
      await work.ping(secret);
      await work.fail().catch(() => {});
      await new Promise(setImmediate);
    }
    const { status, stdout, stderr } = await looked;
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).not.toContain(secret);
    const told = JSON.parse(stdout);
    expect(told.engines).toMatchObject([
      {
        url,
        state: "serving",
        incarnation: engine.incarnation.toString(16).padStart(16, "0"),
        openIn: 1,
        peers: 2,
      },
    ]);
    expect(told.engines[0].inPerSecond).toBeGreaterThan(0);
    expect(told.engines[0].errorsPerSecond).toBeGreaterThan(0);
    const byName = new Map<string, Record<string, number>>(
      told.methods.map((method: { method: string }) => [method.method, method]),
    );
    expect([...byName.keys()].sort()).toEqual(["work.v1/fail", "work.v1/hold", "work.v1/ping"]);
    expect(byName.get("work.v1/hold")).toMatchObject({
      direction: "in",
      inFlight: 1,
      callsPerSecond: 0,
      p99Ms: 0,
    });
    const { callsPerSecond, errorsPerSecond, p50Ms, p99Ms } = byName.get("work.v1/ping") ?? {};
    expect(callsPerSecond).toBeGreaterThan(0);
    expect(errorsPerSecond).toBe(0);
    expect(p99Ms).toBeGreaterThanOrEqual(p50Ms as number);
    expect(byName.get("work.v1/fail")?.errorsPerSecond).toBeCloseTo(
      byName.get("work.v1/fail")?.callsPerSecond ?? -1,
    );
  });

  it("shows several engines, and one row for a method of all of them", { timeout: 60_000 }, async () => {
    const servers = [await serve(), await serve(), await serve()];
    const urls = servers.map(({ url }) => url);
    for (const url of urls) await (await (await open()).connect(url)).client(Work).ping("a");
    const { status, stdout } = await cinnabar("top", ...urls, "--once", "--every", "100ms", "--json");
    expect(status).toBe(0);
    const { engines, methods } = JSON.parse(stdout);
    expect(engines.map(({ url, state }: { url: string; state: string }) => [url, state])).toEqual(
      urls.map((url) => [url, "serving"]),
    );
    expect(methods.map(({ method }: { method: string }) => method)).toEqual(["work.v1/ping"]);
    expect((await cinnabar("why", ...urls)).stdout).toBe("no call is open\n");
  });

  it("prints a table that is sorted as it is told", { timeout: 60_000 }, async () => {
    const { url } = await serve();
    const work = (await (await open()).connect(url)).client(Work);
    await work.ping("a");
    const { status, stdout } = await cinnabar("top", url, "--once", "--every", "100ms", "--sort", "method");
    expect(status).toBe(0);
    expect(stdout).toMatch(/^ENGINE +STATE +IN\/S +OUT\/S +ERR\/S +OPEN +WAIT +PEERS +WINDOW +LENT +STALL$/m);
    expect(stdout).toMatch(/^net:\/\/127\.0\.0\.1:\d+ +serving .*%$/m);
    expect(stdout).toMatch(/^METHOD +DIR +CALLS\/S +ERR\/S +OPEN +P50 +P99$/m);
    expect(stdout).toMatch(/^work\.v1\/ping +in +0 +0 +0 +- +-$/m);
    expect(stdout).toMatch(/^sorted by method$/m);
  });

  // `script` of util-linux provides a terminal.
  it.skipIf(!existsSync("/usr/bin/script"))(
    "fits a terminal of 80 columns, goes on, and ends with q",
    { timeout: 60_000 },
    async () => {
      const long = service("a-service-with-a-rather-long-name-for-a-terminal.v1", {
        aMethodWithALongName: unary(),
      });
      const { url } = await serve({ serve: [implement(long, { aMethodWithALongName() {} })] });
      await (await (await open()).connect(url)).client(long).aMethodWithALongName();
      const command = `stty cols 80 rows 24; '${process.execPath}' '${program}' top ${url} --every 100ms`;
      const child = spawn("script", ["-qec", command, "/dev/null"], {
        env: { ...env, TERM: "xterm", NO_COLOR: "1" },
        stdio: ["pipe", "pipe", "inherit"],
      });
      const ended = once(child, "close");
      ends.push(() => child.exitCode === null && child.kill("SIGKILL") && ended);
      let text = "";
      const frames = () => text.split("\u001b[H\u001b[2J").slice(1);
      // One piece of output may have several frames.
      const steps = [
        { key: "s", isDue: () => frames().length >= 3 },
        { key: "q", isDue: () => /sorted by errors/.test(text) },
      ];
      child.stdout.on("data", (more) => {
        text += more;
        const [step] = steps;
        if (step?.isDue()) child.stdin.write((steps.shift() ?? step).key);
      });
      const [status] = await ended;
      expect(status).toBe(0);
      const lines = frames().flatMap((frame) => frame.split(/\r?\n/));
      expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(80);
      expect(text).toMatch(/…\S*aMethodWithALongName +in/);
      expect(text).toContain("sorted by errors");
    },
  );

  it("follows an engine through its death and its restart", { timeout: 60_000 }, async () => {
    const first = await serve();
    const shown = running("top", first.url, "--every", "100ms");
    await shown.has(/ serving /);
    await first.engine.close();
    await shown.has(/ lost /);
    await serve({ listen: first.url });
    shown.forget();
    await shown.has(/ serving /);
    shown.child.kill("SIGINT");
    expect(await shown.ended).toMatchObject({ status: 130, stderr: "" });
  });

  it("says that an engine drains, and then that it is gone", { timeout: 60_000 }, async () => {
    const { engine, url, release } = await serve();
    const held = (await (await open()).connect(url)).client(Work).hold({ timeoutMs: 60_000 });
    const shown = running("top", url, "--every", "100ms");
    await shown.has(/ serving /);
    const drained = engine.drain({ graceMs: 60_000 });
    await shown.has(/ draining /);
    release();
    expect(await held).toBe("done");
    expect((await drained).aborted).toEqual([]);
    await shown.has(/ lost /);
    shown.child.kill("SIGTERM");
    expect((await shown.ended).status).toBe(143);
  });
});

describe("cinnabar why", () => {
  it("joins both ends of a call by its number, and says what it waits for", { timeout: 60_000 }, async () => {
    const { engine, url } = await serve({ admission: { maxConcurrent: 1, maxQueueMs: 60_000 } });
    const client = await open({ listen: "net://127.0.0.1:0", serve: (engine) => [inspection(engine)] });
    const work = (await client.connect(url)).client(Work, { timeoutMs: 60_000 });
    const calls = [work.hold(), work.hold()];
    for (const call of calls) call.catch(() => {});
    while (engine.calls().length < 2) await new Promise(setImmediate);
    const own = client.urls[0] as string;
    const { status, stdout, stderr } = await cinnabar("why", own, url, "--json");
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    const told = JSON.parse(stdout);
    expect(told.engines.map((one: { url: string }) => one.url)).toEqual([own, url]);
    expect(told.leftOut).toBe(0);
    const ids = client.calls().map(({ callId }) => callId);
    expect(told.calls).toMatchObject([
      {
        method: "work.v1/hold",
        callId: ids[0],
        why: "its handler runs",
        caller: { url: own, phase: "sent" },
        server: { url, phase: "open" },
      },
      {
        callId: ids[1],
        why: "waits in admission control until other handlers end",
        caller: { phase: "sent" },
        server: { phase: "queued" },
      },
    ]);
    const text = (await cinnabar("why", own, url)).stdout;
    expect(text).toMatch(
      /^work\.v1\/hold: its handler runs\n {2}open for .*, .* left, call \d+ of session [0-9a-f]{12}$/m,
    );
    expect(text).toMatch(/^ {2}caller net:.*: waiting .*, sent .*$/m);
    expect(text).toMatch(/^ {2}server net:.*: serving .*$/m);
    const alone = (await cinnabar("why", own, "--limit", "1")).stdout;
    expect(alone).toContain(`sent to ${url}; give the URL of this engine, too`);
    expect(alone).toContain("1 more calls were left out");
    const none = await cinnabar("why", own, url, "--service", "other.v1");
    expect(none).toEqual({ status: 0, stdout: "no call is open\n", stderr: "" });
  });

  it("prints what one engine says when the other cannot be reached, and ends with that status", {
    timeout: 60_000,
  }, async () => {
    const { url } = await serve();
    const { status, stdout, stderr } = await cinnabar("why", url, "net://127.0.0.1:1");
    expect({ status, stdout }).toEqual({ status: 78, stdout: "no call is open\n" });
    expect(stderr).toMatch(/^cinnabar why: .*net:\/\/127\.0\.0\.1:1.*\n$/);
  });
});

describe("cinnabar tail", () => {
  it("prints calls as they end, without what they carry", { timeout: 60_000 }, async () => {
    const { engine, url } = await serve();
    const work = (await (await open()).connect(url)).client(Work);
    const all = cinnabar("tail", url, "--count", "2");
    const failed = cinnabar("tail", url, "--failed", "--count", "1", "--json");
    while (engine.stats().controlRequests.in < 2) await new Promise(setImmediate);
    let isOver = false;
    void Promise.all([all, failed]).then(() => {
      isOver = true;
    });
    while (!isOver) {
      await work.ping(secret);
      await work.fail().catch(() => {});
      await new Promise(setImmediate);
    }
    const { status, stdout, stderr } = await all;
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).toMatch(
      /^\d\d:\d\d:\d\d\.\d{3} in {2}work\.v1\/(ping ok|fail internal) .* \(.*serving .*\) \S+/,
    );
    expect(stdout.trimEnd().split("\n")).toHaveLength(2);
    expect(JSON.parse((await failed).stdout)).toMatchObject({
      method: "work.v1/fail",
      code: "internal",
    });
    expect(stdout + (await failed).stdout).not.toContain(secret);
  });
});

describe("an engine that cannot be looked into", () => {
  const commands = [["top", "--once"], ["top"], ["why"], ["tail"]];

  it.each(commands)("is told in one line: %s %s", { timeout: 60_000 }, async (...command) => {
    const args = command.filter((word) => word !== undefined);
    const { url } = await serve({}, []);
    const off = await cinnabar(...args, url);
    expect(off).toEqual({
      status: 76,
      stdout: "",
      stderr: `cinnabar ${args[0]}: ${url}: this engine does not let others look into it; let it serve inspection(engine) of cinnabar-inspect\n`,
    });
    const dead = await cinnabar(...args, "net://127.0.0.1:1");
    expect(dead).toMatchObject({ status: 78, stdout: "" });
    expect(dead.stderr).toMatch(/^cinnabar \w+: .*net:\/\/127\.0\.0\.1:1.*\n$/);
  });

  it("forbids it to this caller: one line, and status 71 or 80", { timeout: 60_000 }, async () => {
    const folder = mkdtempSync(join(tmpdir(), "cinnabar-"));
    ends.push(() => rmSync(folder, { recursive: true }));
    const key = randomBytes(32);
    const file = join(folder, "me.psk");
    writeFileSync(file, key);
    const { url } = await serve({
      security: {
        psk: { lookup: (identity) => (identity === "me" ? key : undefined) },
        allow: (_, method) => method === "cinnabar.inspect.v1/calls",
      },
    });
    for (const command of [["top", "--once"], ["why"], ["tail"]]) {
      const { status, stdout, stderr } = await cinnabar(...command, url, "--psk", file);
      expect({ status, stdout }).toEqual({ status: 71, stdout: "" });
      expect(stderr).toMatch(/^cinnabar \w+: net:.*cinnabar\.inspect\.v1.*security\.allow.*\n$/);
    }
    const unproven = await cinnabar("why", url);
    expect(unproven).toMatchObject({ status: 80, stdout: "" });
    expect(unproven.stderr).toMatch(/^cinnabar why: .*give --cert.*\n$/);
  });

  it("is killed while a command looks: one line, and status 78", { timeout: 60_000 }, async () => {
    const { child, url } = await serveApart();
    const tail = running("tail", url);
    const client = await open();
    const asking = (await client.connect(url)).client(Inspection);
    while ((await asking.snapshot()).peers.length < 2) await new Promise(setImmediate);
    child.kill("SIGKILL");
    const { status, stdout, stderr } = await tail.ended;
    expect({ status, stdout }).toEqual({ status: 78, stdout: "" });
    expect(stderr).toMatch(/cinnabar tail: net:.*\n$/);
  });

  it("computes and does not answer: said so, and status 68", { timeout: 60_000 }, async () => {
    const { url } = await serveApart();
    const client = await open();
    const peer = await client.connect(url);
    const top = running("top", url, "--once", "--every", "60s", "--timeout", "2s");
    const asking = peer.client(Inspection);
    while ((await asking.snapshot()).peers.length < 2) await new Promise(setImmediate);
    await peer.client(Block).block();
    const { status, stderr } = await top.ended;
    expect([68, 78]).toContain(status);
    expect(stderr).toMatch(/^cinnabar top: net:.*\n$/);
  });

  it.each([
    [["top"], "expected at least one URL"],
    [["top", "net://a:1", "net://a:1"], "net://a:1 is named twice"],
    [["top", "net://a:1", "--sort", "size"], "--sort must be one of calls, errors, open, p50, p99, method"],
    [["top", "net://a:1", "--every", "1ms"], "--every must be at least 100ms"],
    [["why", "net://a:1", "--limit", "0"], "--limit must be a whole number from 1 to 1000"],
    [["tail"], "expected at least one URL"],
    [["tail", "net://a:1", "--per-second", "1000"], "--per-second must be a whole number from 1 to 100"],
    [["tail", "nonsense"], "nonsense"],
  ])("is never asked for wrong usage: %j", { timeout: 60_000 }, async (args, message) => {
    const { status, stdout, stderr } = await cinnabar(...args);
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr).toContain(message);
    expect(stderr.trimEnd().split("\n")).toHaveLength(1);
  });
});

describe("commands of the guide", () => {
  const page = readFileSync(`${root}docs/guide/cli.md`, "utf8");
  const shown = [...page.matchAll(/^npx (cinnabar (?:top|why|tail) [^|>\n]*)/gm)].map(([, text = ""]) =>
    text.trim(),
  );

  it("are found", () => {
    expect(shown.length).toBeGreaterThan(8);
  });

  it.each(shown)("can be run: %s", { timeout: 60_000 }, async (text) => {
    const servers = [await serve(), await serve()];
    const urls = servers.map(({ url }) => url);
    const work = (await (await open()).connect(urls[0] as string)).client(Work);
    const words = text.split(" ").slice(1);
    let at = 0;
    const args = words.map((word) => (word.startsWith("tcp://") ? (urls[at++] as string) : word));
    // What goes on without an end is given one. Shorter intervals show the same.
    const [command] = args;
    const every = args.indexOf("--every");
    if (every >= 0) args[every + 1] = "100ms";
    const count = args.indexOf("--count");
    if (command === "tail") {
      if (count >= 0) args[count + 1] = "3";
      else args.push("--count", "3");
      for (const filter of ["--slower-than", "--service"]) {
        const where = args.indexOf(filter);
        if (where >= 0) args[where + 1] = filter === "--service" ? "work.v1" : "1ms";
      }
    } else if (command === "top" && !args.includes("--once")) args.push("--once");
    const ended = cinnabar(...args);
    let isOver = false;
    void ended.then(() => {
      isOver = true;
    });
    while (!isOver) {
      await work.slow();
      await work.fail().catch(() => {});
    }
    const { status, stdout, stderr } = await ended;
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).not.toBe("");
    if (args.includes("--json")) for (const line of stdout.trimEnd().split("\n")) JSON.parse(line);
  });
});
