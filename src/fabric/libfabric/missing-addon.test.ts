import { describe, expect, it } from "vitest";
import { adviceForMissingAddon, type Machine, thisMachine } from "./missing-addon.ts";
import { otherRuntime } from "./runtime.ts";

const linux: Machine = { platform: "linux", arch: "x64", hasGlibc: true, otherRuntime: "" };

const supported = "Linux on x64 and arm64 with glibc 2.28 or later";

describe("the advice where the addon is missing", () => {
  it.each([
    ["macOS", { platform: "darwin", arch: "arm64", hasGlibc: false, otherRuntime: "" }],
    ["Windows", { platform: "win32", arch: "x64", hasGlibc: false, otherRuntime: "" }],
  ] as const)("says on %s what is supported, and that the sources do not build there", (_, machine) => {
    const advice = adviceForMissingAddon(machine);
    expect(advice).toContain(supported);
    expect(advice).toContain("build on Linux only");
    expect(advice).not.toContain("npx");
    expect(advice).toContain("mem://");
  });

  it("says on musl to take an image with glibc", () => {
    const advice = adviceForMissingAddon({ ...linux, hasGlibc: false });
    expect(advice).toContain("node:24-slim");
    expect(advice).toContain(supported);
  });

  it("says on Linux how to build the addon, and where there are binaries", () => {
    const here = adviceForMissingAddon({ ...linux, arch: "arm64" });
    expect(here).toMatch(/npx cinnabar build.*cmake and a C\+\+20 compiler.*npm run setup/);
    expect(here).not.toContain("not for arm64");
    const other = adviceForMissingAddon({ ...linux, arch: "riscv64" });
    expect(other).toContain(`${supported}, not for riscv64. Build it by npx cinnabar build`);
  });

  it("knows this machine", () => {
    const { platform, arch } = process;
    expect(thisMachine()).toEqual({ platform, arch, hasGlibc: true, otherRuntime: "" });
  });

  it.each([
    [{ node: "26.3.0", bun: "1.4.5" }, "Bun 1.4.5"],
    [{ node: "26.3.0", deno: "2.9.6" }, "Deno 2.9.6"],
  ])("names on another runtime than Node what works there", (versions, name) => {
    expect(otherRuntime(versions)).toBe(name);
    const advice = adviceForMissingAddon({ ...linux, otherRuntime: name });
    expect(advice).toBe(`Run Node, or use net:// and mem://, which work on ${name}`);
  });
});
