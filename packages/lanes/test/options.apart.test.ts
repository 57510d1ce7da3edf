import { memoryShare } from "cinnabar/options";
import { type LanesOptions, openLanes } from "cinnabar-lanes";
import { describe, expect, it } from "vitest";
import { laneUrl } from "../src/addresses.ts";
import { dividedMemory, resolveLanesOptions } from "../src/options.ts";

const module = new URL("file:///service.js");
const resolve = (options: object, from: unknown = module) =>
  resolveLanesOptions(from as URL, { listen: "shm://a", ...options } as LanesOptions, 6);

describe("the options of openLanes", () => {
  it("have defaults but for the address", () => {
    expect(resolve({})).toMatchObject({
      module: "file:///service.js",
      listen: ["shm://a"],
      lanes: 6,
      dispatcher: "serve",
      restart: { baseDelayMs: 100, maxDelayMs: 5000 },
      startTimeoutMs: 30_000,
      engine: {},
    });
    expect(resolve({ heartbeatMs: 500, admission: { maxConcurrent: 3 } }).engine).toEqual({
      heartbeatMs: 500,
      admission: { maxConcurrent: 3 },
    });
  });

  it.each<[string, object, string]>([
    ["no lanes", { lanes: 0 }, "lanes must be an integer from 1 to 256, it is 0"],
    ["too many", { lanes: 257 }, "lanes must be an integer from 1 to 256, it is 257"],
    ["an unknown option", { threads: 2 }, 'unknown option "threads"'],
    ["no address", { listen: [] }, "listen must be a URL"],
    ["what is no URL", { listen: "a" }, '"a" cannot have lanes, only tcp, verbs, shm and net can'],
    ["mem://", { listen: "mem://a" }, "mem:// reaches no other thread"],
    [
      "a name too long for a lane's",
      { listen: `shm://${"a".repeat(60)}` },
      "has 66 characters, at most 64 are allowed",
    ],
    ["a fabric without lanes", { listen: "psm3://*:1" }, "only tcp, verbs, shm and net can"],
    [
      "a lane at the dispatcher's port",
      { listen: "tcp://h:7402", lanes: 2, firstLanePort: 7401 },
      "is at a port of lane 1",
    ],
    [
      "ports beyond the last",
      { listen: "tcp://h:1", lanes: 2, firstLanePort: 65_535 },
      "an integer from 1 to 65534",
    ],
    ["a dispatcher that is neither", { dispatcher: "forward" }, 'dispatcher must be "serve" or "refer"'],
    ["an unknown bound of memory", { resourceLimits: { heap: 1 } }, 'unknown option "resourceLimits.heap"'],
    [
      "a pause of nothing",
      { restart: { baseDelayMs: 0 } },
      "restart.baseDelayMs must be a number of milliseconds",
    ],
    ["no time to start", { startTimeoutMs: 0 }, "startTimeoutMs must be a number of milliseconds"],
    ["a listener that is none", { onLaneDied: 1 }, "onLaneDied must be a function"],
  ])("are not %s", (_, options, message) => {
    expect(() => resolve(options)).toThrow(message);
  });

  it.each<[string, object, string]>([
    ["an option", { heartbeatMs: 1 }, "heartbeatMs must be a number of milliseconds from 100"],
    ["a limit", { limits: { maxRequests: 0 } }, "limits.maxRequests must be"],
  ])("are not %s out of an engine's bounds: no thread is started", async (_, options, message) => {
    await expect(openLanes(module, { listen: "shm://nobody", ...options })).rejects.toThrow(message);
  });

  it.each(["../service.js", "service", 7, null, {}])("want the module as a URL, not %s", (from) => {
    expect(() => resolve({}, from)).toThrow("the module must be a URL");
  });
});

describe("the memory budget of a lane", () => {
  it("is the default divided by the engines, unless one is given", () => {
    const memoryBytes = memoryShare(100);
    expect(memoryBytes).toBeLessThan(memoryShare(1));
    const options = { heartbeatMs: 500, limits: { maxRequests: 3 } };
    expect(dividedMemory(options, 100)).toEqual({
      heartbeatMs: 500,
      limits: { maxRequests: 3, memoryBytes },
    });
    expect(dividedMemory({}, 100)).toEqual({ limits: { memoryBytes } });
    const given = { limits: { memoryBytes: 2 ** 30 } };
    expect(dividedMemory(given, 100)).toEqual(given);
  });
});

describe("the data of a lane's module", () => {
  it("is that of the beginning, whatever becomes of it, for lanes that are replaced too", () => {
    const data: Record<string, unknown> = { shard: 3 };
    const resolved = resolve({ data });
    data.shard = 4;
    data.late = () => {};
    expect(resolved.data).toEqual({ shard: 3 });
  });

  it("must be such as can be cloned", () => {
    expect(() => resolve({ data: { made: () => {} } })).toThrow("could not be cloned");
  });
});

describe("a lane's address", () => {
  it("is made of the dispatcher's", () => {
    expect(laneUrl("shm://orders", 3, undefined)).toBe("shm://orders.lane3");
    expect(laneUrl("tcp://0.0.0.0:7400", 3, undefined)).toBe("tcp://0.0.0.0:0");
    expect(laneUrl("tcp://[::1]:7400", 3, 7500)).toBe("tcp://[::1]:7503");
    expect(laneUrl("verbs://10.0.0.1:7400", 0, 7500)).toBe("verbs://10.0.0.1:7500");
  });
});
