import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { environment, Project, root, tarball, tool } from "./support/project.ts";

const project = new Project("readme");
const name = `greeter-${process.pid}`;
const env: NodeJS.ProcessEnv = {};
let server: ChildProcess | undefined;

/** The README's programs by their names: a block of code begins each with its name. */
function programs(): Map<string, string> {
  const page = readFileSync(`${root}README.md`, "utf8");
  const blocks = [...page.matchAll(/^```ts\n([\s\S]*?)^```/gm)].map((match) => match[1] ?? "");
  const parts = blocks.flatMap((block) => block.split(/^(?=\/\/ [\w-]+\.ts$)/m));
  return new Map(parts.map((text) => [/^\/\/ ([\w-]+\.ts)/.exec(text)?.[1] ?? "", text]));
}

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
  const readme = programs();
  for (const file of ["contract.ts", "server.ts", "client.ts"]) {
    const text = readme.get(file);
    expect(text, file).toBeDefined();
    // Its addresses may be in use on this machine.
    project.write(file, (text ?? "").replaceAll("shm://greeter", `shm://${name}`).replaceAll(":7400", ":0"));
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

describe("a new project after npm init, npm install and the README's lines", () => {
  // From 24 on Node takes TypeScript with `using` as it is.
  it.each([
    ["20", "tsx", [tsx]],
    ["22", "tsx", [tsx]],
    ["24", "tsx", [tsx]],
    ["24", "nothing else", []],
    ["26", "tsx", [tsx]],
    ["26", "nothing else", []],
  ])("says hello over tcp and shm on Node %s with %s", async (version, _, loader) => {
    const node = tool(`node-${version}`, "bin/node");
    server = spawn(node, [...loader, "server.ts"], {
      cwd: project.folder,
      env: { ...environment, ...env },
      stdio: ["ignore", "pipe", "inherit"],
    });
    const lines = createInterface({ input: server.stdout as NodeJS.ReadableStream })[Symbol.asyncIterator]();
    expect((await lines.next()).value).toBe(`shm://${name}`);
    const url = (await lines.next()).value;
    expect(url).toMatch(/^tcp:\/\/127\.0\.0\.1:\d+$/);
    project.write(
      "tcp-client.ts",
      readFileSync(project.path("client.ts"), "utf8").replace(`shm://${name}`, String(url)),
    );
    for (const client of ["client.ts", "tcp-client.ts"]) {
      const { stdout, stderr } = project.node([...loader, client], { env, node });
      expect(stdout, stderr).toBe("Hello, world\ngive a name\n");
    }
  });

  it("has the command cinnabar, and a tree of packages that npm calls whole", () => {
    const report = project.node(["node_modules/cinnabar/dist/cli/bin/cinnabar.js", "info", "--json"]).stdout;
    expect(JSON.parse(report)).toMatchObject({ versions: {} });
    expect(npm("ls", "--all")).not.toMatch(/invalid|missing|extraneous|UNMET (?!OPTIONAL)/);
  });
});
