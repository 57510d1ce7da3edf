import { describe, expect, it } from "vitest";
import { layerOf, type Profile, timesByLayer } from "../../bench/layers/layer-of.ts";

const inFile = (url: string, functionName = "f") => layerOf({ functionName, url });

describe("the layer of a function in a profile", () => {
  it("follows the folder of src/ or dist/", () => {
    expect(inFile("file:///x/dist/wire/codec.js")).toBe("codec");
    expect(inFile("file:///x/build/src/base/options/assert-options.js")).toBe("validation");
    expect(inFile("file:///x/dist/fabric/progress.js")).toBe("ports");
    expect(inFile("file:///x/dist/fabric/libfabric/addon.js")).toBe("ports");
    expect(inFile("file:///x/dist/session/connection/outbox.js")).toBe("scheduling");
    expect(inFile("file:///x/dist/client/client-call.js")).toBe("scheduling");
  });

  it("knows the libraries that work for a layer", () => {
    expect(inFile("file:///x/node_modules/zod/v4/core/schemas.js")).toBe("validation");
  });

  it("tells what calls the addon from what the language does, and both from waiting", () => {
    expect(inFile("file:///x/dist/fabric/native-port.js", "progress")).toBe("native");
    expect(inFile("", "slice")).toBe("caller");
    expect(inFile("", "(garbage collector)")).toBe("garbage collection");
    expect(inFile("", "(program)")).toBe("event loop");
    expect(inFile("node:internal/timers", "processImmediate")).toBe("event loop");
    expect(inFile("", "(idle)")).toBeUndefined();
  });

  it("calls the rest the benchmark's", () => {
    expect(inFile("file:///x/build/bench/echo/server.js")).toBe("benchmark");
  });
});

describe("times by layer", () => {
  it("are of the function itself, and of the language's functions it called", () => {
    const profile: Profile = {
      nodes: [
        { id: 1, callFrame: { functionName: "(root)", url: "" }, children: [2, 4] },
        {
          id: 2,
          callFrame: { functionName: "encodeAt", url: "file:///x/dist/wire/codec.js" },
          children: [3, 5],
        },
        { id: 3, callFrame: { functionName: "utf8Write", url: "" } },
        { id: 4, callFrame: { functionName: "(idle)", url: "" } },
        { id: 5, callFrame: { functionName: "check", url: "file:///x/dist/contract/check.js" } },
      ],
      samples: [2, 3, 3, 4, 5],
      timeDeltas: [10, 20, 30, 1000, 5],
    };
    const times = timesByLayer(profile);
    expect(times.codec).toBe(60);
    expect(times.validation).toBe(5);
    expect(Object.values(times).reduce((a, b) => a + b)).toBe(65);
  });
});
