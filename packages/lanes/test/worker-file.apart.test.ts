import { existsSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { workerFile } from "../src/worker-file.ts";

describe("the file of a lane's thread", () => {
  it("is that of the installed package where none lies beside the code, as in a bundle", () => {
    const path = workerFile();
    expect(path).toMatch(/dist\/lane-worker\.js$/);
    expect(existsSync(path)).toBe(true);
  });

  it("is missing in a bundle without the package: the error names the path and the cure", () => {
    expect(() => workerFile(() => undefined)).toThrow(
      expect.objectContaining({
        code: "failed_precondition",
        message: expect.stringMatching(/tried .*lane-worker\.js\. .*mark cinnabar-lanes as external/),
      }),
    );
  });
});
