import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import ts from "typescript";
import { expect } from "vitest";
import { blocksOf, type Module, modulesOf, userPages } from "./pages.test-support.ts";

/** The programs of the pages, as a reader compiles and starts them. */
export class PagePrograms {
  readonly #folder: string;
  readonly #running: ChildProcess[] = [];

  /** `folder` is where `cinnabar` and zod are found. */
  constructor(folder: string) {
    this.#folder = folder;
  }

  folderOf(page: string): string {
    return `${this.#folder}/${basename(page, ".md")}`;
  }

  /** Compiles the programs of a page. */
  write(page: string): void {
    mkdirSync(this.folderOf(page), { recursive: true });
    for (const module of modulesOf(page).filter(({ isNamed }) => isNamed))
      writeFileSync(`${this.folderOf(page)}/${scriptOf(module.name)}`, compiled(module));
  }

  /** Starts the programs of a page one after another, and compares what they print with the page. */
  async expectOutputs(page: string, node: string): Promise<void> {
    const outputs = outputsOf(page);
    const programs: Program[] = [];
    for (const { name, text } of outputs) {
      const program = this.#start(page, name, node);
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
  }

  /** Ends what still runs; for afterEach. */
  async endAll(): Promise<void> {
    for (const child of this.#running.splice(0)) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await ended;
    }
  }

  #start(page: string, name: string, node: string): Program {
    const child = spawn(node, [`${this.folderOf(page)}/${scriptOf(name)}`], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    this.#running.push(child);
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
}

interface Program {
  readonly child: ChildProcess;
  readonly ended: Promise<number | null>;
  printed(): string;
  /** Resolves when it has printed that, or has ended. */
  hasPrinted(text: string): Promise<void>;
}

/** The programs that a page runs, in its order, and what it says that each prints. */
export function outputsOf(page: string): { readonly name: string; readonly text: string }[] {
  return blocksOf(page).flatMap(({ comment, text }) => {
    const name = /^prints: ([\w-]+\.(?:ts|mjs))$/.exec(comment)?.[1];
    return name === undefined ? [] : [{ name, text }];
  });
}

/** The module as JavaScript, by the settings that the guide shows, with addresses that this run alone uses. */
export function compiled({ page, text }: Module): string {
  const own = text
    .replaceAll(shmAddress, (_, host: string) => `shm://${ownName(host)}`)
    .replaceAll("127.0.0.1:7400", ownAddress(page));
  return ts.transpileModule(own, {
    compilerOptions: {
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.ESNext,
      experimentalDecorators: true,
      rewriteRelativeImportExtensions: true,
    },
  }).outputText;
}

const scriptOf = (name: string) => name.replace(/\.ts$/, ".js");

/**
 * Addresses of a page would meet those of another run on this machine, or of the page before. Each run has a loopback
 * address of its own, and each page a port.
 */
const ownName = (name: string) => `${name}-${process.pid}`;
const ownHost = `127.${[16, 8, 0].map((bits) => ((process.pid >> bits) & 255) + (bits === 16 ? 1 : 0)).join(".")}`;
const ownAddress = (page: string) => `${ownHost}:${7400 + userPages.indexOf(page)}`;
const shmAddress = /\bshm:\/\/([a-z]+)/g;
