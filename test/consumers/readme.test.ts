import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { afterAll, expect, it } from "vitest";
import { environment, Project, root, tarball, tool } from "./support/project.ts";

const project = new Project("readme");
let server: ChildProcess | undefined;
afterAll(async () => {
  if (server !== undefined && server.exitCode === null && server.signalCode === null) {
    const ended = once(server, "exit");
    server.kill("SIGTERM");
    await ended;
  }
  project.remove();
});

/** The README's programs by their names: a block of code begins each with its name. */
function programs(): Map<string, string> {
  const page = readFileSync(`${root}README.md`, "utf8");
  const blocks = [...page.matchAll(/^```ts\n([\s\S]*?)^```/gm)].map((match) => match[1] ?? "");
  const parts = blocks.flatMap((block) => block.split(/^(?=\/\/ [\w-]+\.ts$)/m));
  return new Map(parts.map((text) => [/^\/\/ ([\w-]+\.ts)/.exec(text)?.[1] ?? "", text]));
}

it("a new project says hello over tcp and shm after npm init, npm install and the README's lines", async () => {
  const npm = (...args: string[]) =>
    execFileSync("npm", [...args, "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"], {
      cwd: project.folder,
      encoding: "utf8",
      env: { ...environment, npm_config_ignore_scripts: "true" },
    });
  npm("init", "-y", "--init-type=module");
  npm("install", tarball, "zod");
  npm("pkg", "set", "type=module");
  const readme = programs();
  const name = `greeter-${process.pid}`;
  for (const file of ["contract.ts", "server.ts", "client.ts"]) {
    const text = readme.get(file);
    expect(text, file).toBeDefined();
    // Its addresses may be in use on this machine.
    project.write(file, (text ?? "").replaceAll("shm://greeter", `shm://${name}`).replaceAll(":7400", ":0"));
  }
  // A tarball of a checkout has no addon.
  const own = project.has(`node_modules/cinnabar/native/linux-${process.arch}-glibc/cinnabar.node`);
  const env = own ? {} : { CINNABAR_ADDON: `${root}native/build/Release/cinnabar.node` };
  const tsx = tool("tsx", "dist/cli.mjs");
  server = spawn(process.execPath, [tsx, "server.ts"], {
    cwd: project.folder,
    env: { ...environment, ...env },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const lines = createInterface({ input: server.stdout as NodeJS.ReadableStream })[Symbol.asyncIterator]();
  expect((await lines.next()).value).toBe(`shm://${name}`);
  expect((await lines.next()).value).toMatch(/^tcp:\/\/127\.0\.0\.1:\d+$/);
  const { stdout, stderr } = project.node([tsx, "client.ts"], { env });
  expect(stdout, stderr).toBe("Hello, world\ngive a name\n");

  const { stdout: report } = project.node([
    "node_modules/cinnabar/dist/cli/bin/cinnabar.js",
    "info",
    "--json",
  ]);
  expect(JSON.parse(report)).toMatchObject({ versions: {} });
});
