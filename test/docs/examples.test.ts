import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { afterAll, describe, expect, it } from "vitest";
import { compile } from "./compile.test-support.ts";
import { importsFor, root } from "./pages.test-support.ts";

const folder = `${root}test/docs/.tmp-examples-${process.pid}`;
const context = "example-context.test-support.ts";

afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Example {
  readonly file: string;
  /** The line of its first line of code, from 1 on. */
  readonly line: number;
  readonly code: string;
}

/** The code of every `@example` in a source file. It ends at the next tag, or with its comment. */
function examplesOf(file: string): Example[] {
  const lines = readFileSync(root + file, "utf8").split("\n");
  return lines.flatMap((text, at) => {
    if (!/^\s*\* @example\b/.test(text)) return [];
    const isOutside = (line: string) => /^\s*\*\/|^\s*\* @\w/.test(line);
    const length = lines.slice(at + 1).findIndex(isOutside);
    const code = lines.slice(at + 1, at + 1 + length).map((line) => line.replace(/^\s*\* ?/, ""));
    return [{ file, line: at + 2, code: code.join("\n") }];
  });
}

const sources = execFileSync("git", ["ls-files", "src", "packages"], { cwd: root, encoding: "utf8" })
  .split("\n")
  .filter((file) => /(^|\/)src\/.*\.ts$/.test(file) && !file.includes(".test"));
const examples = sources.flatMap(examplesOf);

describe("examples in docstrings", () => {
  it("compile, every one", { timeout: 300_000 }, () => {
    mkdirSync(folder, { recursive: true });
    for (const { file, line, code } of examples) {
      // The messages of the compiler show the line of the source.
      const text = `${importsFor(code)} export {};${"\n".repeat(line - 1)}${code}`;
      writeFileSync(`${folder}/${file.replaceAll("/", "-").replace(".ts", `-${line}.ts`)}`, text);
    }
    const names = [
      ...readFileSync(`${root}test/docs/${context}`, "utf8").matchAll(/^export (?:declare )?const (\w+)/gm),
    ].map((match) => match[1]);
    const globals = [
      ...names,
      ...["createReadStream", "createServer", "createWriteStream", "readFileSync", "writeFile"],
      ...["writeFileSync", "Readable"],
    ].map((name) => `const ${name}: typeof import("../${context}").${name};`);
    expect(compile(folder, `export {};\ndeclare global {\n${globals.join("\n")}\n}`)).toBe("");
    const rooms = new Set(examples.map(({ file }) => file.split("/src/")[0]));
    expect([...rooms]).toEqual(
      expect.arrayContaining(["packages/bulk", "packages/group", "packages/lanes", "packages/otel"]),
    );
    expect(examples.length).toBeGreaterThan(50);
  });
});
