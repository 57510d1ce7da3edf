import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { parseOptions } from "../../bench/suite/options.ts";
import { compile } from "./compile.test-support.ts";
import { blocksOf, modulesOf, root, userPages } from "./pages.test-support.ts";
import { outputsOf, PagePrograms } from "./programs.test-support.ts";

const folder = `${root}test/docs/.tmp-${process.pid}`;
const programs = new PagePrograms(folder);
const modules = userPages.flatMap(modulesOf);

beforeAll(() => {
  for (const page of userPages) mkdirSync(programs.folderOf(page), { recursive: true });
});
afterEach(() => programs.endAll());
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("code in README and guide", () => {
  it("compiles under the package's own settings, every block", { timeout: 300_000 }, () => {
    for (const { page, name, text } of modules) writeFileSync(`${programs.folderOf(page)}/${name}`, text);
    const messages = compile(
      folder,
      `import type { CallContext, Engine, Peer } from "cinnabar";
declare global {
  const engine: Engine;
  const peer: Peer;
  const call: CallContext;
  const signal: AbortSignal;
}`,
    );
    expect(messages).toBe("");
  });

  for (const page of userPages.filter((one) => outputsOf(one).length > 0)) {
    it(`prints what ${page} says, in processes of its own`, async () => {
      programs.write(page);
      await programs.expectOutputs(page, process.execPath);
    });
  }
});

describe("each page of the guide", () => {
  for (const page of userPages.filter((one) => one !== "README.md")) {
    it(`begins with a program that runs, or with its command: ${page}`, () => {
      const [first, second] = blocksOf(page);
      if (first === undefined) return; // a list of pages, or a page of words
      if (first?.language === "sh") expect(first.text).toMatch(/^np[mx] /);
      else
        expect([first?.text, second?.comment]).toEqual([
          expect.stringMatching(/^\/\/ [\w-]+\.ts\n/),
          expect.stringMatching(/^prints: /),
        ]);
    });
  }
});

describe("commands in README and guide", () => {
  const lines = userPages.flatMap((page) =>
    blocksOf(page)
      .filter(({ language }) => language === "sh")
      .flatMap(({ text }) =>
        text.split("\n").map((line) => ({ page, line: line.split(" #")[0]?.trim() ?? "" })),
      ),
  );

  it("are scripts of package.json where they begin with npm run", () => {
    const { scripts } = JSON.parse(readFileSync(`${root}package.json`, "utf8")) as { scripts: object };
    for (const { page, line } of lines) {
      const name = /\bnpm (?:run ([\w:-]+)|(test)\b)/.exec(line);
      if (name !== null) expect(Object.keys(scripts), `${page}: ${line}`).toContain(name[1] ?? name[2]);
    }
  });

  it("name options that npm run bench has", () => {
    for (const { page, line } of lines) {
      const args = /npm run bench -- (.*)/.exec(line)?.[1];
      if (args === undefined) continue;
      const words = [...args.matchAll(/"([^"]*)"|(\S+)/g)].map((match) => match[1] ?? match[2] ?? "");
      expect(
        () => parseOptions(words, ["small", "bulk"], ["shm", "net-unix"]),
        `${page}: ${line}`,
      ).not.toThrow();
    }
  });

  it("are commands of cinnabar, with options that it has", () => {
    const asked = new Set<string>();
    for (const { page, line } of lines) {
      const [, name = "", rest = ""] = /(?:^|npx )cinnabar (\w+)([^&|;]*)/.exec(line) ?? [];
      if (name === "") continue;
      const help = helpOf(name);
      expect(help.status, `${page}: ${line}`).toBe(0);
      for (const [option] of rest.matchAll(/--[\w-]+(?![\w.-])/g))
        expect(help.stdout, `${page}: ${line}`).toContain(option);
      asked.add(name);
    }
    expect([...asked]).toContain("info");
  });
});

const helps = new Map<string, { status: number | null; stdout: string }>();

function helpOf(command: string) {
  const bin = `${root}dist/cli/bin/cinnabar.js`;
  const known =
    helps.get(command) ?? spawnSync(process.execPath, [bin, command, "--help"], { encoding: "utf8" });
  helps.set(command, known);
  return known;
}
