import { describe, expect, it } from "vitest";
import { defaultMemoryBytes, processMemory } from "../base/flow/engine-limits.ts";
import { encodeAt } from "../wire/encode-value.ts";
import { packLanes } from "../wire/handshake.ts";
import { laneUrl } from "./addresses.ts";
import { dividedMemory, type LanesOptions, resolveLanesOptions } from "./options.ts";

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
    [
      "an engine's option out of bounds",
      { heartbeatMs: 1 },
      "heartbeatMs must be a number of milliseconds from 100",
    ],
    ["an engine's limit out of bounds", { limits: { maxRequests: 0 } }, "limits.maxRequests must be"],
    ["no address", { listen: [] }, "listen must be a URL"],
    ["what is no URL", { listen: "a" }, 'url "a": expected'],
    ["mem://", { listen: "mem://a" }, "mem:// reaches no other thread"],
    [
      "a name too long for a lane's",
      { listen: `shm://${"a".repeat(60)}` },
      "has 66 characters, at most 64 are allowed",
    ],
    ["a fabric without lanes", { listen: "psm3://*:1" }, "only tcp, verbs, shm and net can"],
    [
      "a list of lanes longer than a message",
      { listen: `shm://${"a".repeat(40)}`, lanes: 256 },
      'the list of 256 lanes of "shm://',
    ],
    [
      "such a list of long hosts",
      { listen: `tcp://${"host.".repeat(10)}net:0`, lanes: 180 },
      "bytes, at most 12288 are allowed: use fewer lanes or a shorter host",
    ],
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

  it("have as many lanes as the list of them has room for", () => {
    expect(resolve({ listen: ["shm://orders", "tcp://0.0.0.0:7400"], lanes: 256 }).lanes).toBe(256);
    const { listen, lanes } = resolve({ listen: `shm://${"a".repeat(56)}`, lanes: 148 });
    const list = Array.from({ length: lanes }, (_, lane) => ({
      url: laneUrl(listen[0] as string, lane, undefined),
      incarnation: 2n ** 64n - 1n,
    }));
    const { start, end } = encodeAt(Buffer.alloc(16 * 1024), 0, packLanes(list));
    expect(end - start).toBeLessThanOrEqual(12 * 1024);
    expect(end - start).toBeGreaterThan(11 * 1024);
  });

  it.each(["../service.js", "service", 7, null, {}])("want the module as a URL, not %s", (from) => {
    expect(() => resolve({}, from)).toThrow("the module must be a URL");
  });
});

describe("the memory budget of a lane", () => {
  it("is the default divided by the engines, unless one is given", () => {
    const memory = processMemory();
    const memoryBytes = defaultMemoryBytes(memory, 100);
    expect(memoryBytes).toBeLessThan(defaultMemoryBytes(memory));
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
