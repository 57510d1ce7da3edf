import { realpathSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { addonCandidates, libfabricCandidates, ownFiles } from "./candidates.ts";
import { providers } from "./libfabric.ts";

const files = {
  built: ["/p/build.node"],
  bundledAddon: ["/p/bundled.node"],
  bundledLibfabric: ["/p/lib.so"],
};
const paths = (candidates: readonly { path: string }[]) => candidates.map(({ path }) => path);

describe("the addon", () => {
  it("is looked for where it is built, then in the package", () => {
    expect(addonCandidates({}, files)).toEqual([
      { path: "/p/build.node", origin: "built from the sources" },
      { path: "/p/bundled.node", origin: "bundled with the package" },
    ]);
  });

  it("is the one that CINNABAR_ADDON names, and no other", () => {
    const named = [{ path: "/a.node", origin: "CINNABAR_ADDON" }];
    expect(addonCandidates({ CINNABAR_ADDON: "/a.node" }, files)).toEqual(named);
    expect(paths(addonCandidates({ CINNABAR_ADDON: "" }, files))).toEqual([
      "/p/build.node",
      "/p/bundled.node",
    ]);
  });
});

describe("libfabric", () => {
  it("is the package's before the system's", () => {
    expect(libfabricCandidates({}, files)).toEqual([
      { path: "/p/lib.so", origin: "bundled with the package" },
      { path: "libfabric.so.1", origin: "the system's" },
    ]);
    expect(paths(libfabricCandidates({ CINNABAR_LIBFABRIC: "" }, files))).toEqual([
      "/p/lib.so",
      "libfabric.so.1",
    ]);
  });

  it("is the system's before the package's if CINNABAR_LIBFABRIC says so", () => {
    const preferred = libfabricCandidates({ CINNABAR_LIBFABRIC: "system" }, files);
    expect(paths(preferred)).toEqual(["libfabric.so.1", "/p/lib.so"]);
  });

  it("is the one that CINNABAR_LIBFABRIC names, and no other", () => {
    expect(libfabricCandidates({ CINNABAR_LIBFABRIC: "/l.so" }, files)).toEqual([
      { path: "/l.so", origin: "CINNABAR_LIBFABRIC" },
    ]);
  });
});

describe("the package's own files", () => {
  it("are named by their whole paths, in the build's folder and in one for this platform", () => {
    const root = fileURLToPath(new URL("../../..", import.meta.url));
    const { built, bundledAddon, bundledLibfabric } = ownFiles();
    const folder = `${root}native/linux-${process.arch}-glibc`;
    expect(built).toContain(`${root}native/build/Release/cinnabar.node`);
    expect(bundledAddon).toEqual([`${folder}/cinnabar.node`]);
    expect(bundledLibfabric).toEqual([`${folder}/libfabric.so.1`]);
  });

  it("are reported with the real file of the libfabric in use, and where it comes from", () => {
    const { addon, libfabric } = providers();
    expect(addon.at(-1)).toMatchObject({ reason: "" });
    expect(realpathSync(libfabric.path)).toBe(libfabric.path);
    const expected = process.env.CINNABAR_LIBFABRIC ? "CINNABAR_LIBFABRIC" : "the system's";
    expect(libfabric.origin).toBe(expected);
    expect(libfabric.tried.at(-1)).toMatchObject({ origin: expected, reason: "" });
  });
});
