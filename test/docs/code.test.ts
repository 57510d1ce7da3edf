import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import ts from "typescript";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { parseOptions } from "../../bench/suite/options.ts";
import { compile } from "./compile.test-support.ts";
import { blocksOf, type Module, modulesOf, root, userPages } from "./pages.test-support.ts";

const folder = `${root}test/docs/.tmp-${process.pid}`;
const folderOf = (page: string) => `${folder}/${basename(page, ".md")}`;
const modules = userPages.flatMap(modulesOf);
const running: ChildProcess[] = [];

beforeAll(() => {
  for (const page of userPages) mkdirSync(folderOf(page), { recursive: true });
});
afterEach(async () => {
  for (const child of running.splice(0)) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  }
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("code in README and guide", () => {
  it("compiles under the package's own settings, every block", { timeout: 300_000 }, () => {
    for (const { page, name, text } of modules) writeFileSync(`${folderOf(page)}/${name}`, text);
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

  for (const page of userPages) {
    const outputs = blocksOf(page).flatMap(({ comment, text }) => {
      const name = /^prints: ([\w-]+\.ts)$/.exec(comment)?.[1];
      return name === undefined ? [] : [{ name, text }];
    });
    if (outputs.length === 0) continue;
    it(`prints what ${page} says, in processes of its own`, async () => {
      for (const module of modules.filter((one) => one.page === page && one.isNamed)) translate(module);
      const programs: Program[] = [];
      for (const { name, text } of outputs) {
        const program = start(page, name);
        programs.push(program);
        await program.hasPrinted(text);
        expect(program.printed(), name).toBe(text);
      }
      // The last ends by itself; servers end when they are told to.
      const last = programs.at(-1);
      expect(await last?.ended).toBe(0);
      for (const { child, ended } of programs.slice(0, -1)) {
        if (child.exitCode === null) child.kill("SIGTERM");
        await ended;
      }
      expect(programs.map(({ printed }) => printed())).toEqual(outputs.map(({ text }) => text));
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
      for (const [option] of rest.matchAll(/--[\w-]+/g))
        expect(help.stdout, `${page}: ${line}`).toContain(option);
      asked.add(name);
    }
    expect([...asked]).toContain("info");
  });
});

const helps = new Map<string, { status: number | null; stdout: string }>();

function helpOf(command: string) {
  const bin = `${root}packages/cli/bin/cinnabar.js`;
  const known =
    helps.get(command) ?? spawnSync(process.execPath, [bin, command, "--help"], { encoding: "utf8" });
  helps.set(command, known);
  return known;
}

interface Program {
  readonly child: ChildProcess;
  readonly ended: Promise<number | null>;
  printed(): string;
  /** Resolves when it has printed that, or has ended. */
  hasPrinted(text: string): Promise<void>;
}

/**
 * Addresses of a page would meet those of another run on this machine, or of the page before. Each run has a loopback
 * address of its own, and each page a port.
 */
const ownName = (name: string) => `${name}-${process.pid}`;
const ownHost = `127.${[16, 8, 0].map((bits) => ((process.pid >> bits) & 255) + (bits === 16 ? 1 : 0)).join(".")}`;
const ownAddress = (page: string) => `${ownHost}:${7400 + userPages.indexOf(page)}`;
const shmAddress = /\bshm:\/\/([a-z]+)/g;

function translate({ page, name, text }: Module): void {
  const own = text
    .replaceAll(shmAddress, (_, host: string) => `shm://${ownName(host)}`)
    .replaceAll("127.0.0.1:7400", ownAddress(page));
  const { outputText } = ts.transpileModule(own, {
    compilerOptions: {
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.ESNext,
      verbatimModuleSyntax: true,
      rewriteRelativeImportExtensions: true,
    },
  });
  writeFileSync(`${folderOf(page)}/${name.replace(".ts", ".js")}`, outputText);
}

function start(page: string, name: string): Program {
  const child = spawn(process.execPath, [`${folderOf(page)}/${name.replace(".ts", ".js")}`], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  running.push(child);
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (piece: string) => {
    text += piece;
  });
  const ended = once(child, "close").then(([status]) => status as number | null);
  const printed = () =>
    text
      .replaceAll(`-${process.pid}`, "")
      .replaceAll(ownAddress(page), "127.0.0.1:7400")
      .replaceAll(/127\.0\.0\.1:\d+/g, "127.0.0.1:7400")
      .trimEnd();
  const hasPrinted = (expected: string) =>
    new Promise<void>((resolve) => {
      const check = () => {
        if (printed() === expected) resolve();
      };
      check();
      child.stdout.on("data", check);
      void ended.then(() => resolve());
    });
  return { child, ended, printed, hasPrinted };
}
