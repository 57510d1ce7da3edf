import { describe, expect, it } from "vitest";
import { whyNativeFailed } from "../../scripts/setup/builds.mjs";

describe("a native build that failed", () => {
  it("is told by the compiler's errors, not by the files that were compiled after them", () => {
    const compiled = (file: number) => `[${file}/98] Building CXX object ${file}.cc.o`;
    const error = "a.cc:385:42: error: ‘TCP_NODELAY’ was not declared in this scope";
    const output = [compiled(1), "FAILED: a.cc.o", error, "  385 |   setsockopt(", compiled(2), compiled(3)];
    expect(whyNativeFailed(output.join("\n"))).toBe(error);
  });

  it("is told by the end of the output where no line is an error", () => {
    const lines = Array.from({ length: 40 }, (_, line) => `line ${line}`);
    expect(whyNativeFailed(lines.join("\n"))).toBe(lines.slice(10).join("\n"));
  });
});
