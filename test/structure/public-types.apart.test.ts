import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { findUnexported } from "./support/mentioned-types.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
// Below the root, so that the declarations find the packages that they import.
mkdirSync(join(root, "build"), { recursive: true });
const folder = mkdtempSync(join(root, "build/public-types-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("types that the public interface mentions", () => {
  it("are exported beside what mentions them", { timeout: 300_000 }, () => {
    const compiler = join(root, "node_modules/typescript-7/bin/tsc");
    const args = ["-p", "tsconfig.build.json", "--emitDeclarationOnly", "--outDir", join(folder, "dist")];
    execFileSync(process.execPath, [compiler, ...args], { cwd: root });
    const entries = {
      cinnabar: "index.d.ts",
      "cinnabar/standard": "standard.d.ts",
      "cinnabar/contract": "contract.d.ts",
      "cinnabar/contract/standard": "contract/standard.d.ts",
      "cinnabar/inspect": "inspect.d.ts",
      "cinnabar/options": "options.d.ts",
      "cinnabar/testing": "testing.d.ts",
      "cinnabar/native": "native.d.ts",
    };
    // Programs that use reports or types of options have the engine's entry as well, and the engine's users have
    // the entries of reports and of options.
    const beside = {
      cinnabar: ["cinnabar/inspect", "cinnabar/options"],
      "cinnabar/standard": ["cinnabar/inspect", "cinnabar/options"],
      "cinnabar/inspect": ["cinnabar/standard", "cinnabar/options"],
      "cinnabar/options": ["cinnabar/standard"],
      "cinnabar/native": ["cinnabar/standard"],
      "cinnabar/testing": ["cinnabar/standard", "cinnabar/inspect", "cinnabar/options"],
    };
    const missing = findUnexported({ folder: join(folder, "dist"), entries, beside });
    expect(missing).toEqual(Object.fromEntries(Object.keys(entries).map((entry) => [entry, []])));
  });

  it.each([
    ["a parameter", "export declare function a(thing: Hidden): void;", "Hidden (of a)"],
    ["a result in a promise", "export declare function a(): Promise<Hidden>;", "Hidden (of a)"],
    ["a field", "export interface A { readonly thing?: Hidden }", "Hidden (of A)"],
    ["a base class", "export declare class A extends Hidden {}", "Hidden (of A)"],
    ["a type argument", "export type A = readonly Hidden[];", "Hidden (of A)"],
    ["an import type", `export declare const a: import("./hidden.js").Hidden;`, "Hidden (of a)"],
  ])("are found in %s", (_, text, missing) => {
    expect(check(text)).toEqual([missing]);
  });

  it.each([
    ["of an internal member", "export declare class A {\n/** @internal */\nconstructor(thing: Hidden); }"],
    ["of a private member", "export declare class A { private thing(it: Hidden): void; }"],
    ["that is a parameter of the type", "export type A<Hidden> = Hidden[];"],
    ["of another package", `export type A = import("typescript").Node;`],
  ])("need not be exported when it is one %s", (_, text) => {
    expect(check(text)).toEqual([]);
  });

  it("may be exported under any entry that is known", () => {
    expect(check(`export type A = Hidden; export { Hidden } from "./hidden.js";`)).toEqual([]);
  });

  function check(text: string): string[] | undefined {
    const own = mkdtempSync(join(folder, "case-"));
    writeFileSync(join(own, "hidden.d.ts"), "export declare class Hidden {}");
    writeFileSync(join(own, "index.d.ts"), `import type { Hidden } from "./hidden.js";\n${text}`);
    return findUnexported({ folder: own, entries: { own: "index.d.ts" } }).own;
  }
});
