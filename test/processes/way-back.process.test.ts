import { execFileSync, spawnSync } from "node:child_process";
import { afterEach, describe, expect, it } from "vitest";
import { Child, endAllChildren } from "./support/child.ts";
import { type Fabric, fabricsAndNet, freshUrl } from "./support/fabrics.ts";

afterEach(endAllChildren);

interface Ending {
  readonly value?: unknown;
  readonly code?: string;
  readonly notExecuted?: boolean;
}

interface Settings {
  readonly sealed?: boolean;
  readonly maxRequests?: number;
}

async function startFarm(url: string, settings: Settings = {}) {
  const farm = new Child("farm", { url, ...settings });
  const { urls } = await farm.report("listening");
  return { farm, url: urls[0] as string };
}

async function startWorker(url: string, name: string, settings: Settings = {}) {
  const worker = new Child("farm-worker", { url, name, ...settings });
  return { worker, joined: await worker.report("joined") };
}

/** How many of a farm's peers serve it. */
const workersOf = async (farm: Child): Promise<number> =>
  (await farm.ask<{ services: string[] }[]>("peers")).filter(({ services }) => services.length > 0).length;

/** The fabrics, each also sealed. */
const ways: readonly (readonly [Fabric, string, Settings])[] = fabricsAndNet.flatMap((fabric) => [
  [fabric, fabric, {}] as const,
  [fabric, `${fabric}, sealed`, { sealed: true }] as const,
]);

describe.each(ways)("a worker over %s (%s)", (fabric, _name, settings) => {
  it("is called back by the first handler of the farm, within the time of its own call", async () => {
    const { url } = await startFarm(freshUrl(fabric), settings);
    const { joined } = await startWorker(url, "one", settings);
    expect(joined.doubled).toBe(42);
    // The farm has made no client before that handler.
    expect(joined.leftMs).toBeLessThanOrEqual(20_002);
  });

  it("that is killed at any step fails what is open and what follows, and its successor gets none of it", async () => {
    const { farm, url } = await startFarm(freshUrl(fabric), settings);
    // `long`: before its input has come, or after.
    for (const kind of ["hang", "count", "fill", "long", "nothing"]) {
      const { worker } = await startWorker(url, kind, settings);
      const open = kind === "nothing" ? undefined : farm.ask<Ending>("call", { kind, name: kind });
      if (kind !== "nothing" && kind !== "long") await worker.report("serving");
      worker.kill("SIGKILL");
      if (open !== undefined) {
        const { code, value, notExecuted } = await open;
        // What is short may have been answered.
        if (kind !== "long" || value === undefined) expect([kind, code]).toEqual([kind, "unavailable"]);
        if (kind !== "long") expect([kind, notExecuted]).toEqual([kind, false]);
      }
      // Where nothing is open over shm or a socket the end is told at once, over tcp with the connection.
      await farm.report("ended");
      const { worker: next } = await startWorker(url, `${kind} again`, settings);
      const late = await farm.ask<Ending>("call", { kind: "double", name: kind });
      expect([kind, late.code, late.notExecuted]).toEqual([kind, "unavailable", true]);
      expect(await farm.ask("stateOf", kind)).toBe("ended");
      expect(await farm.ask("call", { kind: "double", name: `${kind} again` })).toEqual({ value: 8 });
      expect(await workersOf(farm)).toBe(1);
      next.kill("SIGKILL");
      await farm.report("ended");
    }
  });

  it("that is killed while calls wait for it shows that these were not executed", async () => {
    const narrow = { ...settings, maxRequests: 1 };
    const { farm, url } = await startFarm(freshUrl(fabric), settings);
    const { worker } = await startWorker(url, "narrow", narrow);
    const sent = farm.ask<Ending>("call", { kind: "hang", name: "narrow" });
    await worker.report("serving");
    const waits = farm.ask<Ending>("call", { kind: "double", name: "narrow" });
    worker.kill("SIGKILL");
    expect(await sent).toMatchObject({ code: "unavailable", notExecuted: false });
    expect(await waits).toMatchObject({ code: "unavailable", notExecuted: true });
  });

  it("whose farm is killed while it calls back has the end of both calls", async () => {
    const { farm, url } = await startFarm(freshUrl(fabric), settings);
    const { worker } = await startWorker(url, "one", settings);
    const waits = worker.ask<Ending>("wait");
    await worker.report("serving");
    farm.kill("SIGKILL");
    expect(await waits).toMatchObject({ code: "unavailable", notExecuted: false });
    expect(await worker.report("aborted")).toMatchObject({ code: "unavailable" });
    expect(await worker.report("lost")).toMatchObject({ code: "unavailable" });
  });

  it("is told of a drain, and finishes what the farm has asked of it", async () => {
    const { farm, url } = await startFarm(freshUrl(fabric), settings);
    const { worker } = await startWorker(url, "one", settings);
    const open = farm.ask<Ending>("call", { kind: "hang", name: "one" });
    await worker.report("serving");
    const drained = farm.ask<{ aborted: unknown[] }>("drain");
    // Commands are obeyed in their order: the drain has begun.
    await farm.ask("peers");
    // The worker's calls are refused from then on, and what it serves goes on.
    expect(await worker.ask<Ending>("wait")).toMatchObject({ code: "unavailable", notExecuted: true });
    expect(worker.unread("aborted")).toEqual([]);
    worker.kill("SIGKILL");
    expect(await open).toMatchObject({ code: "unavailable" });
    expect((await drained).aborted).toEqual([]);
  });
});

const ip = (...args: readonly string[]) => execFileSync("ip", args, { stdio: ["ignore", "pipe", "pipe"] });
const name = `cb${process.pid % 100_000}`;
const succeeds = (...command: readonly [string, ...string[]]) =>
  spawnSync(command[0], command.slice(1)).status === 0;
/** Whether this process may make a network namespace, and filter what comes in there. */
const mayHide =
  succeeds("ip", "netns", "add", name) &&
  succeeds("ip", "netns", "exec", name, "iptables", "-A", "INPUT", "-p", "tcp", "--syn", "-j", "DROP");
spawnSync("ip", ["netns", "del", name]);
if (!mayHide)
  console.warn(
    "SKIPPED: a worker that nobody can connect to. It needs `ip netns add` and iptables, as root.",
  );

describe.skipIf(!mayHide)("a worker that nobody can connect to", () => {
  it.each(["tcp", "net"] as const)("registers over %s, and is called", async (scheme) => {
    const [inner, outer] = [`${name}i`, `${name}o`];
    const inside = (...args: readonly string[]) => ip("netns", "exec", inner, "ip", ...args);
    try {
      for (const space of [inner, outer]) ip("netns", "add", space);
      ip(
        "link",
        "add",
        `${name}a`,
        "netns",
        outer,
        "type",
        "veth",
        "peer",
        "name",
        `${name}b`,
        "netns",
        inner,
      );
      for (const space of [inner, outer]) ip("netns", "exec", space, "ip", "link", "set", "lo", "up");
      ip("netns", "exec", outer, "ip", "address", "add", "10.111.0.1/24", "dev", `${name}a`);
      ip("netns", "exec", outer, "ip", "link", "set", `${name}a`, "up");
      inside("address", "add", "10.111.0.2/24", "dev", `${name}b`);
      inside("link", "set", `${name}b`, "up");
      // Nobody can connect to the worker: what asks for a connection is dropped.
      ip(
        "netns",
        "exec",
        inner,
        "iptables",
        "-A",
        "INPUT",
        "-i",
        `${name}b`,
        "-p",
        "tcp",
        "--syn",
        "-j",
        "DROP",
      );
      const within = (space: string) => ({
        launcher: ["ip", "netns", "exec", space] as [string, ...string[]],
      });
      const farm = new Child("farm", { url: `${scheme}://10.111.0.1:0` }, within(outer));
      const { urls } = await farm.report("listening");
      const worker = new Child("farm-worker", { url: urls[0], name: "hidden" }, within(inner));
      expect((await worker.report("joined")).doubled).toBe(42);
      expect(await farm.ask("call", { kind: "double", name: "hidden" })).toEqual({ value: 8 });
      expect(await farm.ask("call", { kind: "long", name: "hidden" })).toEqual({ value: 64 << 20 });
    } finally {
      await endAllChildren();
      for (const space of [inner, outer]) spawnSync("ip", ["netns", "del", space]);
    }
  });
});
