import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { folder, greetings, installed, laneGreeting, Project, root, tool } from "./support/project.ts";

const project = new Project("nodes");
project.copy("hello.mjs");
project.copy("lane.mjs");
for (const part of ["service", "server", "client", "pair"]) project.copy(`sealed-${part}.mjs`);
const nodeOf = (version: string) => tool(`node-${version}`, "bin/node");

beforeAll(() => {
  makeKeys("keys", process.execPath);
});
afterAll(() => project.remove());

/** Makes certificates and a shared key with the command of the package. */
function makeKeys(name: string, node: string): void {
  const command = join(installed, "dist/cli/bin/cinnabar.js");
  for (const args of [
    ["init"],
    ["issue", "server", "--dns", "server.example"],
    ["issue", "client", "--uri", "spiffe://example/client"],
    ["psk", "pair"],
  ]) {
    const { status, stderr } = project.node([command, "keys", ...args, "--dir", project.path(name)], {
      node,
    });
    expect(status, stderr).toBe(0);
  }
}

const provenBy = {
  certificates: "certificate spiffe://example/client asked certificate server.example",
  "shared-key": "psk pair asked psk pair",
} as const;

/** Runs a server and a client as two processes, each under its Node, which move sealed bulk data both ways. */
function expectSealed(
  how: keyof typeof provenBy,
  [server, client]: readonly [string, string],
  { keys = "keys", options = [] }: { keys?: string; options?: readonly string[] } = {},
): void {
  const args = ["sealed-pair.mjs", project.path(keys), how, server, client, ...options];
  const { stdout, stderr } = project.node(args, { node: server });
  expect(stdout, stderr).toBe(
    `${provenBy[how]}, 3000001 bytes there and back\na stranger: unauthenticated\n`,
  );
}

describe.each(["20", "22", "24", "26"])("Node %s", (version) => {
  const node = nodeOf(version);

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

  it("opens sealed sessions between two processes, by certificates that its command has made", () => {
    const keys = `keys-${version}`;
    makeKeys(keys, node);
    expectSealed("certificates", [node, node], { keys });
  });

  it("opens sealed sessions between two processes by a shared key", () => {
    expectSealed("shared-key", [node, node]);
  });

  it.each(["certificates", "shared-key"] as const)(
    "opens them by %s under its permission model, which lets it read the packages and the keys alone",
    (how) => {
      const model = version === "20" ? "--experimental-permission" : "--permission";
      // Since 25 the network must be permitted, too.
      const network = Number(version) >= 25 ? ["--allow-net"] : [];
      const options = [model, "--allow-addons", `--allow-fs-read=${folder}`, ...network];
      expectSealed(how, [node, node], { options });
    },
  );
});

describe("the oldest Node and the newest", () => {
  it.each([
    ["20", "26"],
    ["26", "20"],
  ])("open sealed sessions: %s serves, %s calls", (server, client) => {
    expectSealed("certificates", [nodeOf(server), nodeOf(client)]);
    expectSealed("shared-key", [nodeOf(server), nodeOf(client)]);
  });
});
