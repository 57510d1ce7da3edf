import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { nativeSources } from "../../scripts/package/assemble.mjs";
import { otherPackages, published } from "../../scripts/package/other-packages.mjs";
import { faultsOfContents, faultsOfOther, hasCode } from "../../scripts/test-package/contents.mjs";

const files = [
  ...["package.json", "README.md", "LICENSE", "CHANGELOG.md", "dist/index.js", "dist/index.d.ts"],
  ...["dist/index.js.map", "SECURITY.md", "docs/guide/index.md", "examples/01-hello.ts"],
  ...["dist/cli/bin/cinnabar.js", "licenses/README.txt", "licenses/libfabric/COPYING"],
  ...["licenses/libfabric/notices.txt", "licenses/node-addon-api.txt", "licenses/node-api-headers.txt"],
  ...["native/CMakeLists.txt", "native/include/node-api/napi.h", "native/include/rdma/fabric.h"],
  ...["cinnabar.node", "libfabric.so.1", "libverbs-fi.so"].map((name) => `native/linux-x64-glibc/${name}`),
];

describe("the contents of the package", () => {
  it("are right with binaries, sources of the addon and licences", () => {
    expect(faultsOfContents(files)).toEqual([]);
  });

  it("have no entry whose source is in the checkout alone", () => {
    const own = JSON.parse(
      readFileSync(fileURLToPath(new URL("../../package.json", import.meta.url)), "utf8"),
    );
    for (const manifest of [own, ...otherPackages().map((one) => one.manifest)]) {
      expect(JSON.stringify(manifest)).toContain("cinnabar:source");
      expect(JSON.stringify(published(manifest))).not.toContain("cinnabar:source");
      expect(published(manifest).exports["."]).toMatchObject({ types: "./dist/index.d.ts" });
    }
  });

  it("are wrong without binaries, or with a part of them", () => {
    const without = files.filter((file) => !file.startsWith("native/linux"));
    expect(faultsOfContents(without)).toEqual(["it has no binaries"]);
    const part = [...files, "native/linux-arm64-glibc/cinnabar.node"];
    expect(faultsOfContents(part)).toEqual([
      "it has no native/linux-arm64-glibc/libfabric.so.1",
      "it has no native/linux-arm64-glibc/libverbs-fi.so",
    ]);
  });

  it.each(["licenses/libfabric/COPYING", "dist/cli/bin/cinnabar.js"])("are wrong without %s", (name) => {
    expect(faultsOfContents(files.filter((file) => file !== name))).toEqual([`it has no ${name}`]);
  });

  it.each([
    "dist/call/slot-table.test.d.ts",
    "src/index.ts",
    "examples/demo/main.ts",
    "native/build/Release/cinnabar.node",
    "native/test/main.cc",
    "scripts/package.mjs",
  ])("are wrong with %s", (name) => {
    expect(faultsOfContents([...files, name])).toEqual([`it has ${name}`]);
  });

  it("are wrong with code that has no source map", () => {
    const fault = "dist/call/slot-table.js has no source map";
    expect(faultsOfContents([...files, "dist/call/slot-table.js"])).toEqual([fault]);
  });

  it("need no source map for a file that only hands on what others export", () => {
    const file = "dist/options.js";
    expect(faultsOfContents([...files, file], [file])).toEqual([]);
    const handsOn = 'import { a as b } from "./internal/a.js";\nexport { c } from "./c.js";\nexport { b };\n';
    expect(hasCode(handsOn)).toBe(false);
    expect(hasCode('import "./a.js";\n')).toBe(false);
    expect(hasCode(`${handsOn}b();\n`)).toBe(true);
    expect(hasCode('export const text = "a";\n')).toBe(true);
  });

  it("of another package are right with code, types, licence and the page that npm shows", () => {
    const other = [
      ...["package.json", "README.md", "LICENSE"],
      ...["dist/index.js", "dist/index.js.map", "dist/index.d.ts"],
    ];
    expect(faultsOfOther(other)).toEqual([]);
    expect(faultsOfOther(other.filter((file) => file !== "LICENSE"))).toEqual(["it has no LICENSE"]);
    expect(faultsOfOther([...other, "src/index.ts"])).toEqual(["it has src/index.ts"]);
  });

  it("have every folder of sources that the addon is built from", () => {
    const native = fileURLToPath(new URL("../../native", import.meta.url));
    const lists = ["CMakeLists.txt", "cmake/addon.cmake"].map((file) =>
      readFileSync(`${native}/${file}`, "utf8"),
    );
    const folders = [...lists.join("\n").matchAll(/^\s+(\w+)\/.*\.cc/gm)].map(([, folder]) => folder);
    expect(folders).toContain("binding");
    expect(folders.filter((folder) => !nativeSources().includes(folder as string))).toEqual([]);
    expect(nativeSources()).not.toContain("test");
  });
});
