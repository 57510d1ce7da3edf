import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { findViolations } from "./import-direction.ts";
import { layers, longFiles } from "./layers.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const alarmLines = 500;

const sources = filesBelow("src").filter((path) => path.endsWith(".ts") && !isTest(path));
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
// An optional peer may be absent, and then the import would fail: only those that are always there may be imported.
const dependencies = Object.keys({ ...manifest.dependencies, ...manifest.peerDependencies }).filter(
  (name) => manifest.peerDependenciesMeta?.[name]?.optional !== true,
);
const everything = ["src", "native", "test", "examples", "bench", "scripts", "packages"]
  .flatMap((folder) => filesBelow(folder))
  .filter((path) => /\.(ts|mjs|js|cc|cpp|h|hpp)$/.test(path));

describe("the import direction", () => {
  it("points down the layers only, in every source file", () => {
    const files = sources.map((path) => ({
      path: path.slice("src/".length),
      text: readFileSync(join(root, path), "utf8"),
    }));
    expect(findViolations(files, { layers, packages: dependencies })).toEqual([]);
  });

  const rules = { layers: ["index", "upper", "lower"], packages: ["msgpackr"] };
  const check = (path: string, text: string) => findViolations([{ path, text }], rules);

  it.each([
    ["a static import", `import { a } from "../upper/a.ts";`],
    ["a type import", `import type { A } from "../upper/a.ts";`],
    ["an import for its effects", `import "../upper/a.ts";`],
    ["a re-export", `export { a } from "../upper/a.ts";`],
    ["a re-export of everything", `export * from "../upper/a.ts";`],
    ["a dynamic import", `const a = await import("../upper/a.ts");`],
    ["an import type", `type A = import("../upper/a.ts").A;`],
    ["an import of several lines", `import {\n  a,\n  type B,\n} from "../upper/a.ts";`],
  ])("fails on %s that points up", (_, text) => {
    expect(check("lower/file.ts", text)).toEqual([
      `lower/file.ts: imports "../upper/a.ts", but upper lies above lower`,
    ]);
  });

  it("fails on a layer that imports the public face", () => {
    expect(check("upper/file.ts", `import { a } from "../index.ts";`)).toHaveLength(1);
  });

  it("fails on a folder that is no layer, and on an import from one", () => {
    expect(check("elsewhere/file.ts", "")).toHaveLength(1);
    expect(check("upper/file.ts", `import { a } from "../elsewhere/a.ts";`)).toHaveLength(1);
  });

  it("fails on packages that are not declared and on files outside src", () => {
    expect(check("upper/file.ts", `import { z } from "zod";`)).toHaveLength(1);
    expect(check("upper/file.ts", `import { x } from "../../test/x.ts";`)).toHaveLength(1);
    expect(check("upper/file.ts", `import { x } from "msgpackr-extract";`)).toHaveLength(1);
  });

  it("passes imports down, sideways, of Node and of declared packages, and text that only looks like one", () => {
    const text = `
      import { a } from "../lower/a.ts";
      import { b } from "./b.ts";
      import { readFile } from "node:fs/promises";
      import { Packr } from "msgpackr";
      import { Packr as Other } from "msgpackr/pack";
      // import { c } from "../index.ts";
      const sentence = 'import { c } from "../index.ts"';
    `;
    expect(check("upper/file.ts", text)).toEqual([]);
    expect(check("index.ts", `export { a } from "./upper/a.ts";`)).toEqual([]);
  });
});

describe("the tree", () => {
  it("has no source file over the alarm length without a written reason", () => {
    const long = everything.filter((path) => lineCount(path) > alarmLines && longFiles[path] === undefined);
    expect(long).toEqual([]);
  });

  it("lists no long file that is gone or has become short", () => {
    const stale = Object.keys(longFiles).filter(
      (path) => !existsSync(join(root, path)) || lineCount(path) <= alarmLines,
    );
    expect(stale).toEqual([]);
  });

  it("builds every file of C++ tests", () => {
    const built = readFileSync(join(root, "native/cmake/tests.cmake"), "utf8");
    const files = readdirSync(join(root, "native/test")).filter((name) => name.endsWith(".cc"));
    expect(files.filter((name) => !built.includes(`test/${name}`))).toEqual([]);
  });

  it("names every file after what is in it", () => {
    const vague = /^(utils?|helpers?|misc|common|stuff)$/i;
    expect(everything.filter((path) => vague.test(basename(path, extname(path))))).toEqual([]);
  });
});

function isTest(path: string): boolean {
  return /\.test(-[a-z]+)*\.ts$/.test(path);
}

function lineCount(path: string): number {
  return readFileSync(join(root, path), "utf8").trimEnd().split("\n").length;
}

/** Paths below a folder of the root, without what builds and package managers put there. */
function filesBelow(folder: string): string[] {
  if (!existsSync(join(root, folder))) return [];
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = `${folder}/${entry.name}`;
    if (!entry.isDirectory()) return [path];
    return entry.name === "node_modules" || entry.name.startsWith("build") ? [] : filesBelow(path);
  });
}
