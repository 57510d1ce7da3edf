import { describe, expect, it } from "vitest";
import { hasZstd, resolveCompression } from "./compression.ts";

const resolve = (value: unknown) => resolveCompression("client", "compression", value);

describe("the option compression", () => {
  it("is a format, a format with terms, or none", () => {
    expect(resolve("deflate")).toEqual({ format: "deflate", minBytes: 65_536, sealed: false });
    expect(resolve({ format: "deflate", minBytes: 0, sealed: true })).toEqual({
      format: "deflate",
      minBytes: 0,
      sealed: true,
    });
    for (const none of [false, undefined]) expect(resolve(none)).toBeUndefined();
  });

  it.each<[unknown, string]>([
    ["gzip", 'client: compression must be "deflate" or "zstd", it is "gzip"'],
    [true, 'client: compression must be "deflate", "zstd", an object or false, it is true'],
    [null, 'client: compression must be "deflate", "zstd", an object or false, it is null'],
    [{}, "client: compression.format is missing"],
    [{ format: "br" }, 'client: compression.format must be "deflate" or "zstd", it is "br"'],
    [
      { format: "deflate", minBytes: -1 },
      "client: compression.minBytes must be an integer from 0 to 4294967295, it is -1",
    ],
    [{ format: "deflate", sealed: 1 }, "client: compression.sealed must be true or false, it is 1"],
    [{ format: "deflate", level: 9 }, 'client: unknown option "compression.level"'],
  ])("refuses %j", (value, message) => {
    expect(() => resolve(value)).toThrow(message);
  });

  it.runIf(!hasZstd)("names the versions of Node that have zstd", () => {
    expect(() => resolve("zstd")).toThrow(
      `client: compression "zstd" needs Node 22.15 or 23.8, this is Node ${process.versions.node}; "deflate" works with each`,
    );
  });

  it.runIf(hasZstd)("takes zstd", () => {
    expect(resolve("zstd")).toMatchObject({ format: "zstd" });
  });
});
