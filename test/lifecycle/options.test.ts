import { closeOnSignals, Engine, type EngineOptions, implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { openEngine } from "../matrix/pair.ts";

const Ping = service("ping.v1", { ping: unary() });
const ping = implement(Ping, { ping: () => {} });

describe("Engine.open", () => {
  it.each([
    [
      "carrier-pigeon://roof",
      "expected tcp://host:port, verbs://host:port, net://host:port, net+unix:///path, shm://name or mem://name",
    ],
    [
      "",
      "expected tcp://host:port, verbs://host:port, net://host:port, net+unix:///path, shm://name or mem://name",
    ],
    [
      "mem",
      "expected tcp://host:port, verbs://host:port, net://host:port, net+unix:///path, shm://name or mem://name",
    ],
    ["mem://", "a name has 1 to 64 characters"],
    ["mem://a b", "a name has 1 to 64 characters"],
    ["shm://a/b", "a name has 1 to 64 characters"],
    [`shm://${"x".repeat(65)}`, "a name has 1 to 64 characters"],
    ["tcp://127.0.0.1", "the port is missing"],
    ["tcp://127.0.0.1:", "expected tcp://host:port"],
    ["tcp://127.0.0.1:65536", "port 65536 is above 65535"],
    ["tcp://127.0.0.1:-1", "expected tcp://host:port"],
    ["tcp://::1:80", "expected tcp://host:port"],
    ["tcp://[::g]:80", "is no IPv6 address"],
    ["tcp://[127.0.0.1]:80", "is no IPv6 address"],
    ["tcp://a..b:80", "is no host name"],
    ["tcp://user@host:80", "is no host name"],
    ["tcp://host:80/path", "expected tcp://host:port"],
  ])("refuses to listen at %j, saying why; connect likewise", async (url, why) => {
    await expect(Engine.open({ listen: url })).rejects.toThrow(TypeError);
    await expect(Engine.open({ listen: url })).rejects.toThrow(why);
    const engine = await openEngine();
    await expect(engine.connect(url)).rejects.toThrow(TypeError);
    await expect(engine.connect(url)).rejects.toThrow(why);
  });

  it.each([
    [{ listne: "mem://a" }, 'unknown option "listne"'],
    [{ listen: 5 }, "listen must be"],
    [{ listen: [5] }, "listen must be a URL or"],
    [{ verbs: 5 }, "Engine.open: verbs must be an object"],
    [
      { verbs: { devise: "mlx5_0" } },
      'unknown option "verbs.devise"; did you mean "verbs.device"? known are device, interface, subnet, gid',
    ],
    [{ verbs: { subnet: "10.0.0.0" } }, "verbs.subnet must be an address and a prefix length"],
    [{ serve: Ping }, "serve must be an array"],
    [{ serve: [Ping] }, "serve[0] must be made by implement()"],
    [{ serve: [null] }, "serve[0] must be made by implement()"],
    [{ serve: [ping, ping] }, '"ping.v1" is implemented twice'],
    [{ maxStallMs: -1 }, "maxStallMs must be a number of milliseconds from 0"],
    [{ maxStallMs: Number.POSITIVE_INFINITY }, "maxStallMs must be a number"],
    [{ heartbeatMs: 99 }, "heartbeatMs must be a number of milliseconds from 100"],
    [{ heartbeatMs: "1000" }, "heartbeatMs must be a number"],
    [{ heartbeatMs: Number.NaN }, "heartbeatMs must be a number"],
    [{ heartbeatMs: Number.POSITIVE_INFINITY }, "heartbeatMs must be a number"],
    [{ connectTimeoutMs: 0 }, "connectTimeoutMs must be a number of milliseconds from 1"],
    [{ connectTimeoutMs: 2 ** 31 }, "connectTimeoutMs must be a number of milliseconds from 1"],
    [{ onHandlerError: "log" }, "onHandlerError must be a function"],
    [{ admission: 5 }, "Engine.open: admission must be an object"],
    [{ admission: { maxHandlers: 5 } }, 'unknown option "admission.maxHandlers"'],
    [{ admission: { maxConcurrent: 0 } }, "maxConcurrent must be an integer from 1"],
    [{ admission: { maxQueued: 1.5 } }, "maxQueued must be an integer from 0"],
    [{ admission: { targetQueueMs: "5" } }, "targetQueueMs must be an integer from 1"],
    [{ limits: 5 }, "limits must be an object"],
    [{ limits: null }, "limits must be an object"],
    [{ limits: { maxBodies: 1 } }, 'unknown option "limits.maxBodies"'],
    [{ limits: { maxBodyBytes: 1023 } }, "limits.maxBodyBytes must be an integer from 1024"],
    [{ limits: { maxBodyBytes: 2 ** 32 } }, "limits.maxBodyBytes must be an integer from 1024"],
    [{ limits: { maxPullBytes: 1024 } }, 'unknown option "limits.maxPullBytes"'],
    [{ limits: { maxRequests: 0 } }, "limits.maxRequests must be an integer from 1"],
    [{ limits: { maxRequests: 2 ** 20 + 1 } }, "limits.maxRequests must be an integer from 1"],
    [{ limits: { maxQueuedBytes: 100_000 } }, 'unknown option "limits.maxQueuedBytes"'],
    [{ limits: { maxPoolBytes: 4095 } }, "limits.maxPoolBytes must be an integer from 4096"],
    [{ limits: { maxSessions: "5" } }, "limits.maxSessions must be an integer"],
    [{ limits: { maxValueBytes: 1000 } }, "limits.maxValueBytes must be an integer from 65536"],
    [null, "options must be an object"],
  ])("refuses %j, naming the field", async (options, why) => {
    await expect(Engine.open(options as unknown as EngineOptions)).rejects.toThrow(why);
  });

  it("takes limits that are left undefined for the defaults", async () => {
    const engine = await openEngine({ limits: { maxSessions: undefined } as never });
    expect(engine.stats().sessions).toBe(0);
  });
});

describe("connect", () => {
  it.each([
    [{ timeout: 5 }, 'unknown option "timeout"'],
    [{ timeoutMs: 0 }, "timeoutMs must be a number"],
    [{ timeoutMs: Number.NaN }, "timeoutMs must be a number"],
    [{ timeoutMs: "5" }, "timeoutMs must be a number"],
    [{ timeoutMs: Number.POSITIVE_INFINITY }, "timeoutMs must be a number"],
    [{ timeoutMs: 2 ** 31 }, "timeoutMs must be a number"],
  ])("refuses %j, naming the field", async (options, why) => {
    const engine = await openEngine();
    await expect(engine.connect("mem://nobody-is-here", options as never)).rejects.toThrow(why);
  });

  it("beyond maxSessions is refused, and holds no address", async () => {
    const server = await openEngine({ listen: "mem://one-too-many" });
    const engine = await openEngine({ limits: { maxSessions: 1 } });
    await engine.connect(server.urls[0] as string);
    await expect(engine.connect(server.urls[0] as string)).rejects.toThrow("maxSessions 1 is reached");
    expect(engine.stats().ports).toMatchObject([{ addresses: 1 }]);
  });

  it("refuses port 0, which can only be listened on", async () => {
    const engine = await openEngine();
    await expect(engine.connect("tcp://127.0.0.1:0")).rejects.toThrow(
      "port 0 can be listened on, not connected to",
    );
  });
});

describe("closeOnSignals", () => {
  it.each([
    [{ signal: "SIGTERM" }, 'unknown option "signal"'],
    [{ signals: "SIGTERM" }, "signals must be an array"],
    [{ signals: ["SIGNONE"] }, "it is SIGNONE"],
    [{ graceMs: -1 }, "graceMs must be a number"],
    [{ onDrained: 1 }, "onDrained must be a function"],
  ])("refuses %j, naming the field, and listens for nothing", async (options, why) => {
    const engine = await openEngine();
    expect(() => closeOnSignals(engine, options as never)).toThrow(why);
    expect(process.listenerCount("SIGTERM")).toBe(0);
  });

  it("refuses what is no engine", () => {
    expect(() => closeOnSignals([{}] as never)).toThrow("must be an engine");
  });
});
