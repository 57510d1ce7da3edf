import { execFile } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Engine } from "cinnabar";
import { afterAll, beforeAll, expect, it } from "vitest";
import { program } from "./support/command-line.ts";
import { servedFiles } from "./support/files-service.ts";

/** The server that the pages call. */
const shownUrl = "net://127.0.0.1:7400";

/** The lines of a page's shell blocks that look at it. */
function commandsOf(page: string): string[] {
  const text = readFileSync(fileURLToPath(new URL(`../../docs/guide/${page}`, import.meta.url)), "utf8");
  const blocks = [...text.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, block = ""]) => block);
  return [...new Set(blocks.flatMap((block) => block.split("\n")))].filter((line) => line.includes(shownUrl));
}

const lines = [...new Set([...commandsOf("cli.md"), ...commandsOf("operate.md")])];
let folder: string;
let engine: Engine;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "cinnabar-guide-"));
  // `npx` of these lines is the command as it is built.
  const npx = join(folder, "bin", "npx");
  mkdirSync(join(folder, "bin"));
  writeFileSync(npx, `#!/bin/sh\nshift\nexec '${process.execPath}' '${program}' "$@"\n`);
  chmodSync(npx, 0o755);
  const { files } = servedFiles();
  engine = await Engine.open({ listen: "net://127.0.0.1:0", serve: [files], reflection: true });
});

afterAll(async () => {
  await engine.close();
  rmSync(folder, { recursive: true });
});

it("finds commands", () => {
  expect(lines.length).toBeGreaterThan(12);
});

// One after the other, in one folder: a line may read what a former one has written.
it.each(lines)("runs: %s", async (line) => {
  const command = line.replaceAll(shownUrl, engine.urls[0] as string);
  const env = { ...process.env, NODE_OPTIONS: "", PATH: `${join(folder, "bin")}:${process.env.PATH}` };
  const { status, stderr } = await new Promise<{ status: unknown; stderr: string }>((resolve) => {
    execFile("bash", ["-c", command], { cwd: folder, env }, (error, _, said) =>
      resolve({ status: error?.code ?? 0, stderr: said }),
    );
  });
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
});
