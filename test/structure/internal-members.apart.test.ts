import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { describe, expect, it } from "vitest";
import { findInternalUses } from "./support/internal-members.ts";

const root = fileURLToPath(new URL("../../src", import.meta.url));
const entries = ["index.ts", "standard.ts", "contract.ts", "contract/standard.ts"];

describe("members marked @internal of public classes", () => {
  it("are used in no other folder", { timeout: 300_000 }, () => {
    const { config } = ts.readConfigFile(`${dirname(root)}/tsconfig.json`, ts.sys.readFile);
    const { options } = ts.parseJsonConfigFileContent(config, ts.sys, dirname(root));
    const program = ts.createProgram(
      entries.map((entry) => `${root}/${entry}`),
      options,
    );
    const uses = findInternalUses(program, { root, entries });
    expect(uses).toEqual([]);
  });

  /** What the compiler needs of a library to resolve classes. */
  const globals = "Boolean CallableFunction Function IArguments NewableFunction Number Object RegExp String";
  const thing = `
    export interface Shape { open(): void }
    class Base {
      /** @internal */ inherited = 1;
    }
    export class Thing<T> extends Base {
      /** @internal */ value!: T;
      /** @internal Opens it. */ open(): void {}
      /** @internal */ get size(): number { return 1; }
      /** @internal */ static made = 0;
      /** @internal */ constructor() { super(); }
      shown = 1;
    }
    export class Hidden {
      /** @internal */ value = 1;
    }`;

  it.each([
    ["a property", "export const a = (x: Thing<number>) => x.value;", "Thing.value"],
    ["a method", "export const a = (x: Thing<string>) => x.open();", "Thing.open"],
    ["an accessor", "export const a = (x: Thing<string>) => x.size;", "Thing.size"],
    ["a static member", "export const a = Thing.made;", "Thing.made"],
    ["an inherited member", "export const a = (x: Thing<string>) => x.inherited;", "Thing.inherited"],
    ["an optional chain", "export const a = (x?: Thing<string>) => x?.value;", "Thing.value"],
    ["a name in brackets", `export const a = (x: Thing<string>) => x["value"];`, "Thing.value"],
    ["a parameter taken apart", "export const a = ({ value }: Thing<string>) => value;", "Thing.value"],
    [
      "a renamed part",
      "export function a(x: Thing<string>) { const { size: n } = x; return n; }",
      "Thing.size",
    ],
    ["an assignment", "export function a(x: Thing<number>) { x.value = 2; }", "Thing.value"],
  ])("are found in %s", (_, text, member) => {
    expect(check({ "b/user.ts": `import { Thing } from "../a/thing.ts"; ${text}` })).toEqual([
      `b/user.ts:1: uses ${member}, which is @internal in a/`,
    ]);
  });

  it.each([
    [
      "the class's own folder",
      { "a/user.ts": `import { Thing } from "./thing.ts"; export const a = (x: Thing<1>) => x.value;` },
    ],
    [
      "a test",
      {
        "b/user.test.ts": `import { Thing } from "../a/thing.ts"; export const a = (x: Thing<1>) => x.value;`,
      },
    ],
    [
      "a class that is not public",
      { "b/user.ts": `import { Hidden } from "../a/thing.ts"; export const a = (x: Hidden) => x.value;` },
    ],
    [
      "an interface of the user's own",
      { "b/user.ts": `import type { Shape } from "../a/thing.ts"; export const a = (x: Shape) => x.open();` },
    ],
    [
      "a constructor, and members for everybody",
      { "b/user.ts": `import { Thing } from "../a/thing.ts"; export const a = new Thing<1>().shown;` },
    ],
    ["another member of that name", { "b/user.ts": `export const a = (x: { value: 1 }) => x.value;` }],
  ])("may be used in %s", (_, files) => {
    expect(check(files as unknown as Record<string, string>)).toEqual([]);
  });

  /** The uses in a tree of these files beside the class. */
  function check(files: Readonly<Record<string, string>>): string[] {
    const all: Record<string, string> = {
      "lib.d.ts": `${globals.replace(/\w+/g, "interface $& {}")} interface Array<T> {}`,
      "a/thing.ts": thing,
      "index.ts": `export type { Thing } from "./a/thing.ts";`,
      ...files,
    };
    const host: ts.CompilerHost = {
      fileExists: (path) => path.startsWith("/src/") && all[path.slice("/src/".length)] !== undefined,
      readFile: (path) => all[path.slice("/src/".length)],
      getSourceFile: (path, version) => {
        const text = all[path.slice("/src/".length)];
        return text === undefined ? undefined : ts.createSourceFile(path, text, version, true);
      },
      getDefaultLibFileName: () => "/lib.d.ts",
      getCurrentDirectory: () => "/",
      getCanonicalFileName: (path) => path,
      useCaseSensitiveFileNames: () => true,
      getNewLine: () => "\n",
      writeFile: () => {},
    };
    const options: ts.CompilerOptions = {
      noLib: true,
      strict: true,
      types: [],
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.NodeNext,
      moduleResolution: ts.ModuleResolutionKind.NodeNext,
      allowImportingTsExtensions: true,
      noEmit: true,
    };
    const program = ts.createProgram(
      Object.keys(all).map((path) => `/src/${path}`),
      options,
      host,
    );
    return findInternalUses(program, { root: "/src", entries: ["index.ts"] });
  }
});
