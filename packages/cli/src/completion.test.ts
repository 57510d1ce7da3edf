import { execFile, spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Engine } from "cinnabar";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { program } from "./cli.test-support.ts";
import { manualPage } from "./commands/man.ts";
import { commands } from "./commands.ts";
import { servedFiles } from "./files.test-support.ts";
import { run } from "./run.ts";

let folder: string;
let engine: Engine;
let url: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "cinnabar-completion-"));
  const command = join(folder, "cinnabar");
  writeFileSync(command, `#!/bin/sh\nexec '${process.execPath}' '${program}' "$@"\n`);
  chmodSync(command, 0o755);
  engine = await Engine.open({ listen: "net://127.0.0.1:0", serve: [servedFiles().files], reflection: true });
  url = engine.urls[0] as string;
});

afterAll(async () => {
  await engine.close();
  rmSync(folder, { recursive: true });
});

async function printed(args: readonly string[]): Promise<string> {
  const lines: string[] = [];
  await run(args, {
    columns: Number.POSITIVE_INFINITY,
    print: (text) => lines.push(text),
    complain: (text) => lines.push(`error: ${text}`),
    paint: (_, text) => text,
  });
  return lines.join("\n");
}

/** What a shell prints that runs a script. The command is in its path. */
function shell(name: string, script: string): Promise<string> {
  const env = { ...process.env, NODE_OPTIONS: "", HOME: folder, PATH: `${folder}:${process.env.PATH}` };
  return new Promise((resolve, reject) =>
    execFile(name, ["-c", script], { env, cwd: folder }, (error, stdout, stderr) =>
      error === null ? resolve(stdout) : reject(new Error(stderr)),
    ),
  );
}

describe("what a line can become", () => {
  it.each([
    ["cinnabar ca", "call"],
    ["cinnabar health --wa", "--watch"],
    ["cinnabar completion z", "zsh"],
    ["cinnabar nothing x", ""],
    ["cinnabar call gopher://x f", ""],
    ["cinnabar call net://127.0.0.1:1 f", ""],
  ])("%s", async (line, expected) => {
    expect(await printed(["completion", "--line", line])).toBe(expected);
  });

  it("is a method of the server whose URL stands before, and for describe a service", async () => {
    expect(await printed(["completion", "--line", `cinnabar call --json ${url} files.v1/w`])).toBe(
      "files.v1/write\nfiles.v1/wait",
    );
    const services = await printed(["completion", "--line", `cinnabar describe ${url} --name x fi`]);
    expect(services.split("\n")[0]).toBe("files.v1");
  });
});

// Each takes the script as its user does.
describe("completion in a shell", () => {
  it("bash", async () => {
    const line = `cinnabar call ${url} files.v1/st`;
    const script = `source <(cinnabar completion bash)
COMP_LINE='${line}'; COMP_POINT=\${#COMP_LINE}; _cinnabar; printf '%s\\n' "\${COMPREPLY[@]}"`;
    expect(await shell("bash", script)).toBe("files.v1/stat\n");
  });

  it.runIf(existsSync("/usr/bin/zsh"))("zsh", async () => {
    const script = `compdef() { }; compadd() { shift; print -l -- $@ }
source <(cinnabar completion zsh); words=(cinnabar call '${url}' files.v1/st); CURRENT=4; _cinnabar`;
    expect(await shell("zsh", script)).toBe("files.v1/stat\n");
  });

  it.runIf(existsSync("/usr/bin/fish"))("fish", async () => {
    const script = `cinnabar completion fish | source; complete -C 'cinnabar call ${url} files.v1/st'`;
    expect(await shell("fish", script)).toBe("files.v1/stat\n");
  });
});

describe("the manual page", () => {
  const page = async () =>
    manualPage(
      await Promise.all(commands.map(async ({ name, load }) => ({ name, text: (await load()).help }))),
      new Date(0),
    );

  it("has the help of each command", async () => {
    const text = await page();
    for (const { name } of commands) expect(text).toContain(`\n.Ss ${name}\n`);
    expect(text).toContain("\\-\\-metadata NAME=VALUE");
  });

  it.runIf(existsSync("/usr/bin/mandoc"))("is without fault for mandoc", async () => {
    const { stdout, status } = spawnSync("mandoc", ["-T", "lint", "-W", "warning"], {
      input: `${await page()}\n`,
      encoding: "utf8",
    });
    expect({ stdout, status }).toEqual({ stdout: "", status: 0 });
  });
});
