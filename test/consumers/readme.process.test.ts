import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { environment, Project, root, tarball, tool } from "./support/project.ts";

const project = new Project("readme");
const name = `pictures-${process.pid}`;
const env: NodeJS.ProcessEnv = {};
let server: ChildProcess | undefined;

/** A page's programs by their names: a block of code begins each with its name. */
function programsOf(page: string): Map<string, string> {
  const blocks = [...read(page).matchAll(/^```ts\n([\s\S]*?)^```/gm)].map((match) => match[1] ?? "");
  const parts = blocks.flatMap((block) => block.split(/^(?=\/\/ [\w-]+\.ts$)/m));
  return new Map(parts.map((text) => [/^\/\/ ([\w-]+\.ts)/.exec(text)?.[1] ?? "", text]));
}

/** What a page says that a program prints. */
function printedBy(page: string, program: string): string {
  const [, rest = ""] = read(page).split(`<!-- prints: ${program} -->\n`);
  return /^```text\n([\s\S]*?)^```/m.exec(rest)?.[1] ?? "";
}

const read = (page: string) => readFileSync(`${root}${page}`, "utf8");
const firstService = "docs/guide/first-service.md";

function npm(...args: string[]): string {
  return execFileSync("npm", [...args, "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"], {
    cwd: project.folder,
    encoding: "utf8",
    env: { ...environment, npm_config_ignore_scripts: "true" },
  });
}

beforeAll(() => {
  npm("init", "-y", "--init-type=module");
  npm("install", tarball, "zod");
  npm("pkg", "set", "type=module");
  const files = new Map([...programsOf(firstService), ...programsOf("README.md")]);
  for (const file of ["hello.ts", "contract.ts", "server.ts", "client.ts"]) {
    const text = files.get(file);
    expect(text, file).toBeDefined();
    // Its addresses may be in use on this machine.
    const own = (text ?? "").replaceAll(/shm:\/\/\w+/g, `shm://${name}`);
    project.write(file, file === "client.ts" ? own : own.replaceAll(":7400", ":0"));
  }
  // A tarball of a checkout has no addon.
  if (!project.has(`node_modules/cinnabar/native/linux-${process.arch}-glibc/cinnabar.node`))
    env.CINNABAR_ADDON = `${root}native/build/Release/cinnabar.node`;
});

afterEach(async () => {
  if (server === undefined || server.exitCode !== null || server.signalCode !== null) return;
  const ended = once(server, "exit");
  server.kill("SIGTERM");
  await ended;
});

afterAll(() => project.remove());

const tsx = tool("tsx", "dist/cli.mjs");

/** Node takes TypeScript as it is from 22.18 on, but `using` only from 24 on. */
const ways: [string, string, string[]][] = [
  ["20", "tsx", [tsx]],
  ["22", "tsx", [tsx]],
  ["24", "tsx", [tsx]],
  ["24", "nothing else", []],
  ["26", "tsx", [tsx]],
  ["26", "nothing else", []],
];

describe("a new project after npm init, npm install and the README's lines", () => {
  it.each([...ways, ["22", "nothing else", []] as const])(
    "runs the README's twelve lines on Node %s with %s",
    (version, _, loader) => {
      const node = tool(`node-${version}`, "bin/node");
      const { stdout, stderr } = project.node([...loader, "hello.ts"], { env, node });
      const printed = stdout.replaceAll(name, "greeter").replaceAll(/(127\.0\.0\.1):\d+/g, "$1:7400");
      expect(printed, stderr).toBe(printedBy("README.md", "hello.ts"));
    },
  );

  it.each(ways)(
    "runs the guide's first service over shm and tcp on Node %s with %s",
    async (version, _, loader) => {
      const node = tool(`node-${version}`, "bin/node");
      server = spawn(node, [...loader, "server.ts"], {
        cwd: project.folder,
        env: { ...environment, ...env },
        stdio: ["ignore", "pipe", "inherit"],
      });
      const lines = createInterface({ input: server.stdout as NodeJS.ReadableStream })[
        Symbol.asyncIterator
      ]();
      expect((await lines.next()).value).toBe(`shm://${name}`);
      const url = String((await lines.next()).value);
      expect(url).toMatch(/^tcp:\/\/127\.0\.0\.1:\d+$/);
      project.write(
        "own-client.ts",
        readFileSync(project.path("client.ts"), "utf8").replace(/tcp:\/\/[\d.:]+/, url),
      );
      const { stdout, stderr } = project.node([...loader, "own-client.ts"], { env, node });
      expect(stdout, stderr).toBe(printedBy(firstService, "client.ts"));
    },
  );

  it("has the command cinnabar, and a tree of packages that npm calls whole", () => {
    const report = project.node(["node_modules/cinnabar/dist/cli/bin/cinnabar.js", "info", "--json"]).stdout;
    expect(JSON.parse(report)).toMatchObject({ versions: {} });
    expect(npm("ls", "--all")).not.toMatch(/invalid|missing|extraneous|UNMET (?!OPTIONAL)/);
  });
});
