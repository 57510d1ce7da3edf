import { execFileSync } from "node:child_process";
import { createServer, connect as dial, type Socket } from "node:net";
import { RpcError } from "cinnabar";
import type { EngineStats } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import { isLong } from "../matrix/long.ts";
import { Trial } from "./programs/trial.ts";
import { Child } from "./support/child.ts";
import { freshUrl, underSanitizers } from "./support/fabrics.ts";
import { endAllPeers, mebi, openEngine, outcome, startServer, until } from "./support/peers.ts";

afterEach(endAllPeers);

/**
 * What is refused is known within milliseconds. The bound lets a busy machine be thousands of times slower, and is still
 * half of the time that a silent peer is given.
 */
const refusedWithinMs = 20_000;
const connectTimeoutMs = 2 * refusedWithinMs;

/** The error of a promise that fails, and how long that took. */
async function failure(promise: Promise<unknown>): Promise<{ error: RpcError; tookMs: number }> {
  const begun = performance.now();
  const error = await promise.then(
    () => expect.fail("it did not fail"),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(RpcError);
  return { error: error as RpcError, tookMs: performance.now() - begun };
}

const connectionsOf = (stats: EngineStats) => stats.ports[0]?.connections;

describe("over tcp a refused connection", () => {
  it("fails the connect at once, and the next too", async () => {
    const engine = await openEngine({ connectTimeoutMs });
    // Nobody serves port 1, and no system hands it out.
    for (let attempt = 0; attempt < 3; attempt++) {
      const { error, tookMs } = await failure(engine.connect("tcp://127.0.0.1:1"));
      expect(error).toMatchObject({
        code: "unavailable",
        retryable: true,
        fabric: { name: "ECONNREFUSED" },
        message: "[unavailable] tcp://127.0.0.1:1 cannot be reached: nobody listens there",
      });
      expect(tookMs).toBeLessThan(refusedWithinMs);
    }
    await expect
      .poll(() => engine.stats().ports[0], { timeout: 20_000, interval: 2 })
      .toMatchObject({ sends: 0, freeSlots: 64, connections: { open: 0 } });
  });

  it("ends the calls to a server that was killed, without the heartbeat", async () => {
    const heartbeatMs = 60_000;
    const { server, url } = await startServer({ listen: freshUrl("tcp"), heartbeatMs });
    const engine = await openEngine({ heartbeatMs, connectTimeoutMs });
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 50_000 });
    await trial.echo({ token: "before" });
    await server.destroy();
    const { error, tookMs } = await failure(trial.echo({ token: "after" }, { retry: false }));
    expect(error.code).toBe("unavailable");
    expect(tookMs).toBeLessThan(refusedWithinMs);
    const again = await failure(engine.connect(url));
    expect(again.error.fabric?.name).toBe("ECONNREFUSED");
    expect(again.tookMs).toBeLessThan(refusedWithinMs);
  });

  it("is told from a server that does not speak libfabric's protocol", async () => {
    const other = createServer((socket) => {
      socket.on("error", () => {});
      socket.end("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
    await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
    try {
      const { port } = other.address() as { port: number };
      const engine = await openEngine({ connectTimeoutMs });
      const { error, tookMs } = await failure(engine.connect(`tcp://127.0.0.1:${port}`));
      expect(error.message).toContain("what listens there does not speak this fabric's protocol");
      expect(tookMs).toBeLessThan(refusedWithinMs);
    } finally {
      other.close();
    }
  });
});

/** What libfabric says of zero-copy sends; both names of its provider. */
async function zeroCopyLog(env: NodeJS.ProcessEnv): Promise<string[]> {
  const asked = { FI_NET_ZEROCOPY_SIZE: "65536", FI_TCP_ZEROCOPY_SIZE: "65536" };
  const server = new Child(
    "server",
    { listen: freshUrl("tcp") },
    {
      env: { ...asked, FI_LOG_LEVEL: "info", ...env },
    },
  );
  const { urls } = await server.report("listening");
  const engine = await openEngine({ connectTimeoutMs });
  await (await engine.connect(urls[0])).client(Trial, { timeoutMs: 50_000 }).echo({ token: "there" });
  await engine.close();
  await server.destroy();
  return server.stderr.split("\n").filter((line) => /zero.?copy/i.test(line));
}

describe("over tcp the kernel copies what is sent", () => {
  it("even where libfabric is told to send without a copy", async () => {
    const log = await zeroCopyLog({});
    expect(log.some((line) => line.includes("zerocopy_size=65536"))).toBe(true);
    expect(log.filter((line) => line.includes("enabled"))).toEqual([]);
    // As it would be without the patch.
    const without = await zeroCopyLog({ CINNABAR_NO_PATCHES: "tcp-sockets" });
    expect(without.some((line) => line.includes("zero copy enabled"))).toBe(true);
  });
});

async function startSpawner(): Promise<{ server: Child; url: string }> {
  const server = new Child("spawner", { listen: freshUrl("tcp") });
  const { urls } = await server.report("listening");
  return { server, url: urls[0] };
}

describe("over tcp a program that a server starts", () => {
  it("inherits no descriptor of the engine's, also while transfers go on", async () => {
    const { server, url } = await startSpawner();
    const before = await server.ask<string[][]>("inheritances", 1);
    const engine = await openEngine();
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 50_000 });
    const stop = new AbortController();
    const into = engine.expose(new Uint8Array(mebi), { access: "write" });
    const filled = outcome(trial.fill({ into }, { signal: stop.signal }));
    // Others come and go meanwhile: each makes the server open a socket.
    let coming = true;
    const comers = (async () => {
      while (coming) {
        const other = await openEngine();
        await (await other.connect(url)).client(Trial).echo({ token: "" });
        await other.close();
      }
    })();
    const all = await server.ask<string[][]>("inheritances", isLong ? 300 : 40);
    coming = false;
    await comers;
    stop.abort();
    expect(await filled).toBe("cancelled");
    await into.revoke();
    // What the test's own pipes leave is there before too.
    const foreign = new Set(before[0]?.map((line) => line.replace(/^\d+ /, "").replace(/\[.*/, "")));
    const leaked = all.flat().filter((line) => !foreign.has(line.replace(/^\d+ /, "").replace(/\[.*/, "")));
    expect(leaked).toEqual([]);
    expect(all.flat().filter((line) => /socket|eventpoll|eventfd|memfd/.test(line))).toEqual([]);
  });

  it("keeps neither the address nor the connections when the server is killed", async () => {
    const { server, url } = await startSpawner();
    const heartbeatMs = 60_000;
    const engine = await openEngine({ heartbeatMs });
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 50_000 });
    await trial.echo({ token: "" });
    const child = await server.ask<number>("leaveChild");
    try {
      await server.destroy();
      expect((await failure(trial.echo({ token: "" }, { retry: false }))).error.code).toBe("unavailable");
      const next = await openEngine({ listen: url });
      expect(next.urls).toEqual([url]);
    } finally {
      process.kill(child, "SIGKILL");
    }
  });
});

/** Sets how many descriptors a process may have. */
function limitDescriptors(pid: number, most: number): void {
  execFileSync("prlimit", ["--pid", `${pid}`, `--nofile=${most}:`]);
}

describe("over tcp connections that say nothing", () => {
  const silent: Socket[] = [];
  afterEach(() => {
    for (const socket of silent.splice(0)) socket.destroy();
  });

  it("take all descriptors for some seconds at most", async () => {
    const heartbeatMs = 2000;
    const { server, url } = await startServer({ listen: freshUrl("tcp"), heartbeatMs });
    const honest = (await (await openEngine({ heartbeatMs })).connect(url)).client(Trial);
    await honest.echo({ token: "" });
    const room = isLong ? 1000 : 50;
    limitDescriptors(server.pid, (await server.ask<number>("nextDescriptor")) + room);
    const { port } = new URL(url.replace("tcp:", "http:"));
    const count = room + 30;
    let ended = 0;
    for (let i = 0; i < count; i++) {
      const socket = dial(Number(port), "127.0.0.1");
      silent.push(socket);
      socket.on("error", () => {});
      socket.on("data", () => {});
      socket.on("close", () => ended++);
    }
    // For lack of descriptors some are turned away. The others stay, and keep everybody out.
    await until(() => ended >= count - room);
    const refused = await failure((await openEngine({ connectTimeoutMs })).connect(url));
    expect(refused.error.message).toContain("it has no file descriptor left for the connection");

    // The silent ones do nothing. The next newcomer after their time is up gets in, and needs no second try.
    await honest.echo({ token: "meanwhile" });
    const engine = await openEngine({ connectTimeoutMs });
    let tries = 0;
    const hows = new Set<string>();
    await until(async () => {
      tries++;
      const how = await outcome(engine.connect(url));
      hows.add(how);
      return how === "answered";
    });
    expect([...hows].sort()).toEqual(["answered", "unavailable"]);
    expect(tries).toBeGreaterThan(1);
    await (await engine.connect(url)).client(Trial).echo({ token: "after" });
    // The silent ones reach their bound one after another. Each newcomer ends those that have reached it.
    await until(async () => {
      await (await (await openEngine({ connectTimeoutMs })).connect(url))
        .client(Trial)
        .echo({ token: "more" });
      return ended === count;
    });
    expect(connectionsOf(await server.ask<EngineStats>("stats"))).toMatchObject({ malformed: 0 });
    await honest.echo({ token: "still" });
  });
});

describe.each(["shm", "tcp"] as const)("over %s a server without descriptors", (fabric) => {
  it("turns connections away at once, says why, counts them, and does not spin", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric) });
    const honest = (await (await openEngine()).connect(url)).client(Trial);
    await honest.echo({ token: "" });
    limitDescriptors(server.pid, await server.ask<number>("nextDescriptor"));

    for (let i = 0; i < 5; i++) {
      const engine = await openEngine({ connectTimeoutMs });
      const { error, tookMs } = await failure(engine.connect(url));
      expect(error.message).toContain("it has no file descriptor left for the connection");
      expect(error).toMatchObject({ code: "unavailable", retryable: true });
      expect(tookMs).toBeLessThan(refusedWithinMs);
      await honest.echo({ token: `${i}` });
    }
    const stats = await server.ask<EngineStats>("stats");
    expect(connectionsOf(stats)).toMatchObject({ refused: 5, malformed: 0 });
    // All of one processor before. The share says nothing under a sanitizer.
    const share = await server.ask<number>("idleShare", 500);
    if (!underSanitizers) expect(share).toBeLessThan(0.5);

    limitDescriptors(server.pid, 1024);
    const engine = await openEngine();
    await (await engine.connect(url)).client(Trial).echo({ token: "after" });
    await honest.echo({ token: "still" });
  });

  it("leaves the client that has none itself with a reason", async () => {
    const { url } = await startServer({ listen: freshUrl(fabric) });
    const client = new Child("client", { url, holds: false, engine: {} });
    await client.report("connected");
    limitDescriptors(client.pid, await client.ask<number>("nextDescriptor"));
    const other = await startServer({ listen: freshUrl(fabric) });
    const how = await client.ask<string>("connect", { to: other.url });
    expect(how).toContain("this process has no file descriptor left");
    expect(await client.ask("echo", { token: "still" })).toMatchObject({ token: "still" });
  });
});
