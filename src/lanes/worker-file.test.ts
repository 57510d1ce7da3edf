import { existsSync } from "node:fs";
import { afterEach, describe, expect, it, vi } from "vitest";
import * as ownFiles from "../fabric/libfabric/own-files.ts";
import { workerFile } from "./worker-file.ts";

vi.mock("../fabric/libfabric/own-files.ts", { spy: true });
afterEach(() => vi.restoreAllMocks());

describe("the file of a lane's thread", () => {
  it("is that of the installed package where none lies beside the code, as in a bundle", () => {
    const path = workerFile();
    expect(path).toMatch(/dist\/lanes\/lane-worker\.js$/);
    expect(existsSync(path)).toBe(true);
  });

  it("is missing in a bundle without the package: the error names the path and the cure", () => {
    vi.spyOn(ownFiles, "packageFolder").mockReturnValue(undefined);
    expect(() => workerFile()).toThrow(
      expect.objectContaining({
        code: "failed_precondition",
        message: expect.stringMatching(/tried .*lanes\/lane-worker\.js\. .*mark cinnabar as external/),
      }),
    );
  });
});
