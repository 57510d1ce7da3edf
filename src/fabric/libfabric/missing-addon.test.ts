import { describe, expect, it } from "vitest";
import { adviceForMissingAddon, thisMachine } from "./missing-addon.ts";

const supported = "Linux on x64 and arm64 with glibc 2.28 or later";

describe("the advice where the addon is missing", () => {
  it.each([
    ["macOS", { platform: "darwin", arch: "arm64", hasGlibc: false }],
    ["Windows", { platform: "win32", arch: "x64", hasGlibc: false }],
  ] as const)("says on %s what is supported, and that the sources do not build there", (_, machine) => {
    const advice = adviceForMissingAddon(machine);
    expect(advice).toContain(supported);
    expect(advice).toContain("build on Linux only");
    expect(advice).not.toContain("npx");
    expect(advice).toContain("mem://");
  });

  it("says on musl to take an image with glibc", () => {
    const advice = adviceForMissingAddon({ platform: "linux", arch: "x64", hasGlibc: false });
    expect(advice).toContain("node:24-slim");
    expect(advice).toContain(supported);
  });

  it("says on Linux how to build the addon, and where there are binaries", () => {
    const here = adviceForMissingAddon({ platform: "linux", arch: "arm64", hasGlibc: true });
    expect(here).toMatch(/npx cinnabar build.*cmake and a C\+\+20 compiler.*npm run setup/);
    expect(here).not.toContain("not for arm64");
    const other = adviceForMissingAddon({ platform: "linux", arch: "riscv64", hasGlibc: true });
    expect(other).toContain(`${supported}, not for riscv64. Build it by npx cinnabar build`);
  });

  it("knows this machine", () => {
    expect(thisMachine()).toEqual({ platform: process.platform, arch: process.arch, hasGlibc: true });
  });
});
