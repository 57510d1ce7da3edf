import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { connect, type Socket } from "node:net";
import type { EngineStats } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import { Trial } from "./programs/trial.ts";
import { Child } from "./support/child.ts";
import { type Fabric, fabricsAndNet, freshUrl, isSocket, underSanitizers } from "./support/fabrics.ts";
import { endAllPeers, openEngine, startServer, until } from "./support/peers.ts";

const silent: Socket[] = [];
afterEach(async () => {
  for (const socket of silent.splice(0)) socket.destroy();
  await endAllPeers();
});

/** Sets how many descriptors a process may have. */
function limitDescriptors(pid: number, most: number): void {
  execFileSync("prlimit", ["--pid", `${pid}`, `--nofile=${most}:`]);
}

/** A server that has no descriptor left but for `room`, with a client that it knows. */
async function startFull(fabric: Fabric, room: number) {
  const { server, url } = await startServer({ listen: freshUrl(fabric) });
  const honest = (await (await openEngine()).connect(url)).client(Trial);
  await honest.echo({ token: "first" });
  limitDescriptors(server.pid, (await server.ask<number>("nextDescriptor")) + room);
  const stats = async () => (await server.ask<EngineStats>("stats")).ports[0]?.connections;
  return { server, url, honest, stats };
}

describe.each(fabricsAndNet.filter(isSocket))("over %s a server without descriptors", (fabric) => {
  it("ends connections at once, serves those that it has, and does not spin", async () => {
    const { server, url, honest, stats } = await startFull(fabric, 0);
    for (let i = 0; i < 5; i++) {
      const engine = await openEngine({ connectTimeoutMs: 60_000 });
      // Node takes the connection and closes it, and tells nobody why.
      await expect(engine.connect(url)).rejects.toMatchObject({ code: "unavailable", retryable: true });
      await honest.echo({ token: `${i}` });
    }
    expect(await stats()).toMatchObject({ open: 1, malformed: 0 });
    const share = await server.ask<number>("idleShare", 500);
    if (!underSanitizers) expect(share).toBeLessThan(0.5);
    limitDescriptors(server.pid, 1024);
    await (await (await openEngine()).connect(url)).client(Trial).echo({ token: "after" });
    await honest.echo({ token: "still" });
  });

  it("has them back when those that say nothing have had their time", async () => {
    const room = 30;
    const { url, honest, stats } = await startFull(fabric, room);
    let ended = 0;
    for (let i = 0; i < 2 * room; i++) {
      const { port, pathname } = new URL(url);
      const socket = fabric === "net" ? connect(Number(port), "127.0.0.1") : connect(pathname);
      silent.push(socket);
      socket.on("error", () => {});
      socket.on("data", () => {});
      socket.on("close", () => ended++);
    }
    await until(() => ended >= room);
    await expect((await openEngine()).connect(url)).rejects.toMatchObject({ code: "unavailable" });
    await honest.echo({ token: "meanwhile" });
    await until(() => ended === 2 * room);
    await (await (await openEngine()).connect(url)).client(Trial).echo({ token: "after" });
    expect(await stats()).toMatchObject({ open: 2, malformed: 0, evicted: room });
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

it("over net+unix ten processes that start at once leave a killed server's path to one of them", async () => {
  const listen = freshUrl("net+unix");
  const { pathname } = new URL(listen);
  const { server } = await startServer({ listen });
  await server.destroy();
  try {
    const started = await Promise.allSettled(Array.from({ length: 10 }, () => startServer({ listen })));
    const winners = started.filter(({ status }) => status === "fulfilled");
    expect(winners).toHaveLength(1);
    const { value: winner } = winners[0] as PromiseFulfilledResult<Awaited<ReturnType<typeof startServer>>>;
    for (const { status, ...rest } of started)
      if (status === "rejected")
        expect(`${(rest as PromiseRejectedResult).reason}`).toContain("already_exists");
    const honest = (await (await openEngine()).connect(listen)).client(Trial);
    expect(await honest.echo({ token: "a" })).toEqual({ token: "a", life: winner.life });
  } finally {
    rmSync(pathname, { force: true });
    rmSync(`${pathname}.lock`, { recursive: true, force: true });
  }
});
