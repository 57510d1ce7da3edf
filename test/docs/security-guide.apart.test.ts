import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import ts from "typescript";
import { afterAll, beforeAll, expect, it } from "vitest";
import { blocksOf, modulesOf, root } from "./pages.test-support.ts";

const run = promisify(execFile);
const page = "docs/guide/security.md";
/** Inside of the package, so that the programs find it by its name. */
const folder = `${root}test/docs/.tmp-security-${process.pid}`;
const running: ChildProcess[] = [];

beforeAll(() => mkdirSync(folder, { recursive: true }));
afterAll(async () => {
  for (const child of running) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    child.kill("SIGTERM");
    await once(child, "exit");
  }
  rmSync(folder, { recursive: true, force: true });
});

/** Writes a program of the page, with another address than other pages. */
function translate(name: string, address: string): string {
  const module = modulesOf(page).find((one) => one.name === name);
  const { outputText } = ts.transpileModule((module?.text ?? "").replaceAll("127.0.0.1:7400", address), {
    compilerOptions: {
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.ESNext,
      verbatimModuleSyntax: true,
    },
  });
  const file = `${folder}/${name.replace(".ts", ".mjs")}`;
  writeFileSync(file, outputText);
  return file;
}

it("the guide's two processes speak with the certificates that its commands make", async () => {
  const commands = blocksOf(page)
    .filter(({ language }) => language === "sh")
    .slice(0, 1)
    .flatMap(({ text }) => text.split("\n"));
  expect(commands.length).toBeGreaterThan(2);
  for (const command of commands) {
    const [, , ...args] = command.split(" ");
    await run(process.execPath, [`${root}dist/cli/bin/cinnabar.js`, ...args], { cwd: folder });
  }
  const program = translate("server.ts", "127.0.0.1:0");
  const server = spawn(process.execPath, [program], { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
  running.push(server);
  const [line] = (await once(createInterface(server.stdout), "line")) as [string];
  const client = translate("client.ts", line.replace("listening at tcp://", ""));
  const { stdout } = await run(process.execPath, [client], { cwd: folder });
  expect(stdout).toMatch(/^open for {"kind":"certificate","name":"spiffe:\/\/example\/client",/);
});
