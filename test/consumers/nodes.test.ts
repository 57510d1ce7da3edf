import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { greetings, installed, laneGreeting, Project, root, tool } from "./support/project.ts";

const project = new Project("nodes");
project.copy("hello.mjs");
project.copy("lane.mjs");
project.copy("sealed.mjs");
afterAll(() => project.remove());

describe.each(["20", "22", "24", "26"])("Node %s", (version) => {
  const node = tool(`node-${version}`, "bin/node");

  it("is of that version, 20 the oldest that package.json takes", () => {
    const { engines } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
      engines: { node: string };
    };
    const said = project.node(["--version"], { node }).stdout;
    expect(said).toMatch(new RegExp(`^v${version}\\.`));
    if (version === "20") expect(said).toBe(`v${engines.node.replace(">=", "")}.0\n`);
  });

  it("calls over mem and tcp from an ES module, and runs lanes", () => {
    const { stdout, stderr } = project.node(["hello.mjs", project.path("lane.mjs")], { node });
    expect(stdout, stderr).toBe(greetings + laneGreeting);
  });

  it("calls over mem and tcp from CommonJS, which requires the package, and runs lanes", () => {
    const text = readFileSync(join(root, "test/consumers/programs/hello.mjs"), "utf8");
    const required = text.replace(/^import (\{[^}]*\}) from ("[^"]*");$/gm, "const $1 = require($2);");
    project.write("hello.cjs", required);
    const { stdout, stderr } = project.node(["hello.cjs", project.path("lane.mjs")], { node });
    expect(stdout, stderr).toBe(greetings + laneGreeting);
  });

  it("opens a sealed session by certificates that the package's command has made", () => {
    const keys = project.path(`keys-${version}`);
    const command = join(installed, "dist/cli/bin/cinnabar.js");
    for (const args of [
      ["init"],
      ["issue", "server", "--dns", "server.example"],
      ["issue", "client", "--uri", "spiffe://example/client"],
    ]) {
      const { status, stderr } = project.node([command, "keys", ...args, "--dir", keys], { node });
      expect(status, stderr).toBe(0);
    }
    const { stdout, stderr } = project.node(["sealed.mjs", keys], { node });
    expect(stdout, stderr).toBe("spiffe://example/client asked server.example\n");
  });
});
