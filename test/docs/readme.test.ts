import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, it } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
const folder = `${root}test/docs/.tmp-${process.pid}`;
// The README's own names would meet those of another run on this machine.
const name = `greeter-${process.pid}`;
let server: ChildProcess | undefined;

beforeEach(() => mkdirSync(folder, { recursive: true }));
afterEach(async () => {
  if (server?.exitCode === null && server.signalCode === null) {
    const ended = once(server, "exit");
    server.kill();
    await ended;
  }
  rmSync(folder, { recursive: true, force: true });
});

it("shows a contract, a server and a client that compile and run as they stand", async () => {
  for (const { file, text } of filesOfReadme()) {
    const own = text.replaceAll("shm://greeter", `shm://${name}`).replaceAll("127.0.0.1:7400", "127.0.0.1:0");
    writeFileSync(`${folder}/${file}`, own);
  }
  writeFileSync(
    `${folder}/tsconfig.json`,
    JSON.stringify({
      extends: "../../../tsconfig.json",
      compilerOptions: { noEmit: false, rootDir: ".", outDir: ".", paths: {} },
      files: ["contract.ts", "server.ts", "client.ts"],
      include: [],
    }),
  );
  const compiler = [`${root}node_modules/typescript/bin/tsc`, "-p", folder];
  const compiled = spawnSync(process.execPath, compiler, { encoding: "utf8" });
  expect(compiled.stdout).toBe("");

  server = spawn(process.execPath, [`${folder}/server.js`], { stdio: ["ignore", "pipe", "inherit"] });
  const lines = createInterface({ input: server.stdout as NodeJS.ReadableStream });
  const [said] = await once(lines, "line");
  expect(said).toMatch(new RegExp(`^listening on shm://${name} and tcp://127\\.0\\.0\\.1:\\d+$`));
  const printed = execFileSync(process.execPath, [`${folder}/client.js`], {
    encoding: "utf8",
    timeout: 30_000,
  });
  expect(printed).toBe("Hello, world\neveryone has a name\n");
});

/** The first block of TypeScript, cut at its `// name.ts` lines. */
function filesOfReadme(): { file: string; text: string }[] {
  const readme = readFileSync(`${root}README.md`, "utf8");
  const block = /```ts\n([\s\S]*?)```/.exec(readme)?.[1] ?? "";
  const parts = block.split(/^\/\/ (\w+\.ts)$/m).slice(1);
  const files: { file: string; text: string }[] = [];
  for (let i = 0; i + 1 < parts.length; i += 2)
    files.push({ file: parts[i] as string, text: parts[i + 1] as string });
  expect(files.map(({ file }) => file)).toEqual(["contract.ts", "server.ts", "client.ts"]);
  return files;
}
