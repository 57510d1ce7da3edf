import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, extname, join, posix } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { findCircles, findViolations, packagesReachedFrom } from "./support/import-direction.ts";
import { layers, longFiles, roomFiles } from "./support/layers.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
/** From how many lines on a file needs a reason in `longFiles`. One subject a file is the rule, not a count of lines. */
const alarmLines = 1_000;

const sources = filesBelow("src").filter((path) => path.endsWith(".ts") && !isTest(path));
const sourceFiles = sources.map((path) => ({
  path: path.slice("src/".length),
  text: readFileSync(join(root, path), "utf8"),
}));
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const dependencies = Object.keys({ ...manifest.dependencies, ...manifest.peerDependencies });
const optionalPeers = dependencies.filter((name) => manifest.peerDependenciesMeta?.[name]?.optional === true);
const everything = ["src", "native", "test", "examples", "bench", "scripts", "packages"]
  .flatMap((folder) => filesBelow(folder))
  .filter((path) => /\.(ts|mjs|js|cc|cpp|h|hpp)$/.test(path));

describe("timers of the process", () => {
  // Fake timers of a user's test replace the globals, and an engine that waits for one would stand still.
  it("are set by way of base/time/ alone", () => {
    const users = sourceFiles
      .filter(({ path }) => !path.startsWith("base/time/"))
      .filter(({ text }) =>
        /(?<![\w.*] ?)(set|clear)(Timeout|Immediate|Interval)\(|performance\.now\(/.test(
          withoutComments(text),
        ),
      )
      .map(({ path }) => path);
    expect(users).toEqual([]);
  });
});

const withoutComments = (text: string): string => text.replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, "");

describe("the rooms", () => {
  it("have a file each to open first, and so have the parts of the session", () => {
    const rooms = new Set<string>();
    for (const { path } of sourceFiles) {
      const [room = "", part = ""] = path.split("/");
      if (part !== "") rooms.add(room);
      if (room === "session" && part !== "connection") rooms.add(`session/${part}`);
    }
    expect(Object.keys(roomFiles).sort()).toEqual([...rooms].sort());
  });

  it.each(Object.entries(roomFiles))("%s begins with what it is for, promises and takes", (room, first) => {
    const text = sourceFiles.find(({ path }) => path === first)?.text ?? "";
    const lines = (/^\/\*\n((?: \* .*\n)+) \*\//.exec(text)?.[1] ?? "").split("\n").slice(0, -1);
    expect(lines.length).toBeLessThanOrEqual(5);
    const comment = lines.map((line) => line.slice(3)).join(" ");
    const [, name, takes = ""] =
      /^The (?:room|part) `(.+?)`: .+ Promises: .+ Takes: (.+)$/.exec(comment) ?? [];
    expect(name).toBe(room);
    // What it takes comes from rooms that it imports.
    const taken = [...takes.matchAll(/`([a-z/]+)`/g)].map(([, from = ""]) => from);
    const imported = sourceFiles
      .filter(({ path }) => path.startsWith(`${room}/`))
      .flatMap(({ path, text }) =>
        [...text.matchAll(/from "(\..+?)"/g)].map(([, to = ""]) => posix.join(posix.dirname(path), to)),
      );
    const isRoom = (from: string) => from in roomFiles || from === "session/connection";
    expect(
      taken.filter((from) => isRoom(from) && !imported.some((path) => path.startsWith(`${from}/`))),
    ).toEqual([]);
    const row = `| \`${posix.dirname(first)}/\` | \`${basename(first)}\` |`;
    expect(readFileSync(join(root, "docs/design/layers.md"), "utf8")).toContain(row);
  });
});

describe("the names of types", () => {
  it("belong to one declaration each", () => {
    const declared = new Map<string, string[]>();
    for (const { path, text } of sourceFiles)
      for (const [, name = ""] of text.matchAll(
        /^(?:export )?(?:abstract )?(?:interface|type|class) (\w+)/gm,
      ))
        declared.set(name, [...(declared.get(name) ?? []), path]);
    expect([...declared].filter(([, paths]) => paths.length > 1)).toEqual([]);
  });
});

describe("the import direction", () => {
  it("points down the layers only, in every source file", () => {
    expect(findViolations(sourceFiles, { layers, packages: dependencies })).toEqual([]);
  });

  it("makes no circle of files", () => {
    expect(findCircles(sourceFiles)).toEqual([]);
  });

  it("finds circles of types, of re-exports and of three files, and no other", () => {
    const file = (path: string, ...targets: string[]) => ({
      path,
      text: targets.map((target) => `import type { A } from "./${target}";`).join("\n"),
    });
    expect(findCircles([file("l/a.ts", "b.ts"), file("l/b.ts", "a.ts")])).toEqual([["l/a.ts", "l/b.ts"]]);
    const three = [
      file("l/a.ts", "b.ts"),
      file("l/b.ts", "c.ts"),
      { path: "l/c.ts", text: `export * from "./a.ts";` },
    ];
    expect(findCircles(three)).toEqual([["l/a.ts", "l/b.ts", "l/c.ts"]]);
    expect(findCircles([file("l/a.ts", "b.ts", "c.ts"), file("l/b.ts", "c.ts"), file("l/c.ts")])).toEqual([]);
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

  it("takes a folder below a room for a layer of its own where the list names it, and for the room's where not", () => {
    const nested = { layers: ["room/upper", "room", "room/lower"], packages: [] };
    const found = (path: string, text: string) => findViolations([{ path, text }], nested).length;
    expect(found("room/upper/file.ts", `import { a } from "../a.ts";`)).toBe(0);
    expect(found("room/file.ts", `import { a } from "./upper/a.ts";`)).toBe(1);
    expect(found("room/lower/file.ts", `import { a } from "../a.ts";`)).toBe(1);
    expect(found("room/unnamed/file.ts", `import { a } from "../a.ts";`)).toBe(0);
  });

  it("fails on packages that are not declared and on files outside src", () => {
    expect(check("upper/file.ts", `import { z } from "zod";`)).toHaveLength(1);
    expect(check("upper/file.ts", `import { x } from "../x.ts";`)).toHaveLength(1);
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

describe("optional packages", () => {
  // One that is absent would make the import of the entry fail.
  it.each(["standard.ts", "contract/standard.ts"])(
    "are not imported by %s, nor by what it imports",
    (entry) => {
      const packages = packagesReachedFrom(sourceFiles, entry);
      expect(packages).toContain("@standard-schema/spec");
      expect(packages.filter((name) => optionalPeers.includes(name))).toEqual([]);
    },
  );

  it("are imported by the entry that needs them", () => {
    expect(optionalPeers).toEqual(["@types/node", "zod"]);
    for (const entry of ["index.ts", "contract.ts"])
      expect(packagesReachedFrom(sourceFiles, entry)).toContain("zod");
  });
});

describe("the tree", () => {
  it("has no source file over the alarm length without a written reason", () => {
    expect(everything.filter((path) => isLong(path) && longFiles[path] === undefined)).toEqual([]);
  });

  it("lists no long file that is gone or has become short", () => {
    const stale = Object.keys(longFiles).filter((path) => !existsSync(join(root, path)) || !isLong(path));
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

function isLong(path: string): boolean {
  return readFileSync(join(root, path), "utf8").trimEnd().split("\n").length > alarmLines;
}

/** Paths below a folder of the root, without what builds, package managers and other tests put there for a while. */
function filesBelow(folder: string): string[] {
  if (!existsSync(join(root, folder))) return [];
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = `${folder}/${entry.name}`;
    if (!entry.isDirectory()) return [path];
    return /^(node_modules$|build|\.)/.test(entry.name) ? [] : filesBelow(path);
  });
}
