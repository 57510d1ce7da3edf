import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { layerOf, type Profile, timesByLayer } from "../../bench/layers/layer-of.ts";
import { WrittenFiles } from "../../bench/layers/written-files.ts";

const chunks = new URL("../../dist/internal/chunks/", import.meta.url);

/** Where dist/ has the first line with that text. */
function placeOf(text: string) {
  for (const file of readdirSync(chunks).filter((name) => name.endsWith(".js"))) {
    const lines = readFileSync(new URL(file, chunks), "utf8").split("\n");
    const lineNumber = lines.findIndex((line) => line.includes(text));
    if (lineNumber >= 0)
      return {
        url: new URL(file, chunks).href,
        lineNumber,
        columnNumber: lines[lineNumber]?.indexOf(text) ?? 0,
      };
  }
  throw new Error(`dist/ has no ${text}: run \`npm run setup\``);
}

const inFile = (url: string, functionName = "f") => layerOf({ functionName, url });

describe("the layer of a function in a profile", () => {
  it("follows the folder of src/", () => {
    expect(inFile("cinnabar:///src/wire/encode-value.ts")).toBe("codec");
    expect(inFile("file:///x/build/src/base/options/assert-options.js")).toBe("validation");
    expect(inFile("cinnabar:///src/fabric/progress.ts")).toBe("ports");
    expect(inFile("cinnabar:///src/fabric/libfabric/addon.ts")).toBe("ports");
    expect(inFile("cinnabar:///src/session/channel/outbox.ts")).toBe("scheduling");
    expect(inFile("cinnabar:///src/client/client-call.ts")).toBe("scheduling");
  });

  it("knows the libraries that work for a layer", () => {
    expect(inFile("file:///x/node_modules/zod/v4/core/schemas.js")).toBe("validation");
  });

  it("tells what calls the addon from what the language does, and both from waiting", () => {
    expect(inFile("cinnabar:///src/fabric/native-port.ts", "progress")).toBe("native");
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

describe("the file that a function was written in", () => {
  it("is known by the source map of the package's code", () => {
    const files = new WrittenFiles();
    expect(files.fileOf(placeOf("NativePort = class"))).toBe("cinnabar:///src/fabric/native-port.ts");
    expect(files.fileOf(placeOf("Outbox = class"))).toBe("cinnabar:///src/session/channel/outbox.ts");
  });

  it("is the file that runs where there is no map", () => {
    const place = { url: "node:internal/timers", lineNumber: 1, columnNumber: 0 };
    expect(new WrittenFiles().fileOf(place)).toBe("node:internal/timers");
    expect(new WrittenFiles().fileOf({ ...place, url: import.meta.url })).toBe(import.meta.url);
  });
});

describe("times by layer", () => {
  it("are of the function itself, and of the language's functions it called", () => {
    const profile: Profile = {
      nodes: [
        { id: 1, callFrame: { functionName: "(root)", url: "" }, children: [2, 4] },
        {
          id: 2,
          callFrame: { functionName: "encodeAt", url: "cinnabar:///src/wire/encode-value.ts" },
          children: [3, 5],
        },
        { id: 3, callFrame: { functionName: "utf8Write", url: "" } },
        { id: 4, callFrame: { functionName: "(idle)", url: "" } },
        { id: 5, callFrame: { functionName: "check", url: "cinnabar:///src/contract/check.ts" } },
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
