import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { installed, Project, tool } from "./support/project.ts";

const project = new Project("runtimes");
for (const program of ["everywhere", "impostors"]) project.copy(`${program}.mjs`);
for (const part of ["service", "server", "client", "pair"]) project.copy(`sealed-${part}.mjs`);

const node = process.execPath;
const bun = tool("bun", "bin/bun");
const deno = tool("deno", "deno");
const denoOptions = ["run", "--allow-all"];

beforeAll(() => {
  const command = `${installed}/dist/cli/bin/cinnabar.js`;
  for (const keys of ["keys", "other-keys"])
    for (const args of [
      ["init"],
      ["issue", "server", "--dns", "server.example"],
      ["issue", "client", "--uri", "spiffe://example/client"],
      ["psk", "pair"],
    ]) {
      const { status, stderr } = project.node([command, "keys", ...args, "--dir", project.path(keys)]);
      expect(status, stderr).toBe(0);
    }
});
afterAll(() => project.remove());

const sealed = (how: string, server: string, client: string, options: readonly string[] = []) =>
  project.node(["sealed-pair.mjs", project.path("keys"), how, server, client, ...options], {
    env: { LISTEN: "net://127.0.0.1:0" },
  });

describe.each([
  { name: "Bun 1.4.5", runtime: bun, options: [] },
  { name: "Deno 2.9.6", runtime: deno, options: denoOptions },
])("$name", ({ name, runtime, options }) => {
  const run = (...args: readonly string[]) => project.node([...options, ...args], { node: runtime });

  it("calls, streams, moves bulk data, and shares handles over mem, net and net+unix", () => {
    const urls = ["mem://everywhere", "net://127.0.0.1:0", `net+unix://${project.path("socket")}`];
    const { stdout, stderr } = run("everywhere.mjs", ...urls);
    const answer = "500500 6 42 3000001 5 give one";
    expect(stdout, stderr).toBe(
      ["mem", "net", "net+unix"].map((scheme) => `Hello, ${scheme} ${answer}\n`).join(""),
    );
  });

  it("is told of what needs the addon, and is not ended by it", () => {
    const { stdout, stderr } = run(
      "everywhere.mjs",
      "tcp://127.0.0.1:0",
      "shm://everywhere",
      "net://127.0.0.1:0",
    );
    const [overTcp, overShm, overNet] = stdout.split("\n");
    for (const refused of [overTcp, overShm]) {
      expect(refused, stderr).toContain(
        "unavailable: [unavailable] cinnabar's native addon was not found; tried",
      );
      expect(refused).toContain(`the addon needs Node, and this is ${name}`);
      expect(refused).toContain(`Run Node, or use net:// and mem://, which work on ${name}`);
    }
    expect(overNet).toMatch(/^Hello, net /);
  });
});

describe("sessions with certificates", () => {
  it.each([
    { servers: "Bun", server: bun, clients: "Bun", client: bun },
    { servers: "Node", server: node, clients: "Bun", client: bun },
    { servers: "Bun", server: bun, clients: "Node", client: node },
  ])("are sealed over net: $servers serves, $clients calls", ({ server, client }) => {
    const { stdout, stderr } = sealed("certificates", server, client);
    expect(stdout, stderr).toBe(
      "certificate spiffe://example/client asked certificate server.example, 3000001 bytes there and back\n" +
        "a stranger: unauthenticated\n",
    );
  });

  it.each([
    ["Node", node],
    ["Bun", bun],
  ])("keep impostors out on %s", (_, runtime) => {
    const args = ["impostors.mjs", project.path("keys"), project.path("other-keys")];
    const { stdout, stderr } = project.node(args, { node: runtime });
    expect(stdout, stderr).toBe(
      "the right one: anybody\n" +
        "a certificate of another authority: unauthenticated\n" +
        "another name: unauthenticated\n" +
        "another trust: unauthenticated\n",
    );
  });
});

describe("what a runtime lacks", () => {
  it("is named: Deno exports no keys of TLS, Bun has no pre-shared keys", () => {
    expect(sealed("certificates", deno, deno, denoOptions).stderr).toContain(
      "[unimplemented] security needs exportKeyingMaterial of node:tls, which Deno 2.9.6 does not have",
    );
    expect(sealed("shared-key", bun, bun).stderr).toContain(
      "[unimplemented] security.psk needs pre-shared keys in TLS 1.3, which Bun 1.4.5 does not have",
    );
  });
});
