import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { Engine, implement, service, unary } from "cinnabar";
import { reflection } from "cinnabar-inspect";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { manualPage } from "./commands/man.ts";
import { commands } from "./commands.ts";
import { run } from "./run.ts";

const Files = service("files.v1", { stat: unary(), write: unary(), wait: unary() });
let engine: Engine;
let url: string;

beforeAll(async () => {
  const files = implement(Files, { stat() {}, write() {}, wait() {} });
  engine = await Engine.open({
    listen: "net://127.0.0.1:0",
    serve: (opening) => [files, reflection(opening)],
  });
  url = engine.urls[0] as string;
});

afterAll(() => engine.close());

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
    expect(await printed(["completion", "--line", `cinnabar call --json ${url} files.v1/w`])).toEqual(
      expect.stringMatching(/^files\.v1\/w(rite\nfiles\.v1\/wait|ait\nfiles\.v1\/write)$/),
    );
    const services = await printed(["completion", "--line", `cinnabar describe ${url} --timeout 1s fi`]);
    expect(services.split("\n")[0]).toBe("files.v1");
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
