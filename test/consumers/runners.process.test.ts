import { afterAll, describe, expect, it } from "vitest";
import { Project, tool } from "./support/project.ts";

/** A test in a user's project: the same for every runner, with `load` of the package in front. */
const tests = `
  const Hello = service("hello.v1", {
    hello: unary({ input: z.object({ name: z.string() }), output: z.string(), errors: { NoName: z.string() } }),
  });
  const hello = implement(Hello, {
    hello: ({ name }, call) => (name === "" ? call.fail("NoName", "give one") : "Hello, " + name),
  });
  for (const url of ["mem://hello", "tcp://127.0.0.1:0"]) {
    test("calls over " + url, async () => {
      const server = await Engine.open({ listen: url, serve: [hello] });
      const engine = await Engine.open();
      const client = (await engine.connect(server.urls[0])).client(Hello);
      equal(await client.hello({ name: "a" }), "Hello, a");
      const error = await client.hello({ name: "" }).catch((reason) => reason);
      equal(error instanceof RpcError && isError(error, Hello, "hello", "NoName"), true);
      await engine.close();
      await server.close();
    });
  }
`;

const names = "{ Engine, implement, isError, RpcError, service, unary }";
const imported = `import ${names} from "cinnabar";\nimport { z } from "zod";\n`;
const required = `const ${names} = require("cinnabar");\nconst { z } = require("zod");\n`;
const expected = "const equal = (a, b) => expect(a).toEqual(b);\n";

const project = new Project("runners", {
  "vitest/hello.test.mjs": `import { expect, test } from "vitest";\n${imported}${expected}${tests}`,
  "node/hello.test.mjs": `import { equal } from "node:assert";\nimport { test } from "node:test";\n${imported}${tests}`,
  "node/hello.test.cjs": `const { equal } = require("node:assert");\nconst { test } = require("node:test");\n${required}${tests}`,
  "jest/hello.test.mjs": `${imported}${expected}${tests}`,
  "jest/hello.test.cjs": `${required}${expected}${tests}`,
  "jest/import.test.cjs": `
    // One after the other: jest on Node 20 and 22 mixes up two imports at a time that share modules.
    const loaded = import("cinnabar").then(async (cinnabar) => [cinnabar, await import("zod")]);
    ${expected}
    for (const scheme of ["mem://hello", "tcp://127.0.0.1:0"])
      test("calls over " + scheme, async () => {
        const [{ Engine, implement, service, unary }, { z }] = await loaded;
        const Hello = service("hello.v1", { hello: unary({ output: z.string() }) });
        const server = await Engine.open({ listen: scheme, serve: [implement(Hello, { hello: () => "Hello" })] });
        const engine = await Engine.open();
        equal(await (await engine.connect(server.urls[0])).client(Hello).hello(), "Hello");
        await engine.close();
        await server.close();
      });`,
  "jest.config.mjs": `export default { transform: {}, testMatch: ["**/*.test.?js"], watchman: false };`,
  "vitest.config.mjs": `export default { test: { include: ["vitest/*.test.mjs"] } };`,
});
afterAll(() => project.remove());

describe("tests of users", () => {
  it("call over mem and tcp in vitest", () => {
    const { status, stdout, stderr } = project.node([tool("vitest", "vitest.mjs"), "run"]);
    expect(status, stdout + stderr).toBe(0);
    expect(stdout).toMatch(/Tests .*2 passed/);
  });

  it("call over mem and tcp in node:test, as ES modules and as CommonJS", () => {
    const files = ["node/hello.test.mjs", "node/hello.test.cjs"];
    const { status, stdout, stderr } = project.node(["--test", "--test-reporter=tap", ...files]);
    expect(status, stdout + stderr).toBe(0);
    expect(stdout).toContain("# pass 4");
  });

  const jest = (file: string, flags: readonly string[], version?: string) =>
    project.node([...flags, tool("jest", "bin/jest.js"), "--runInBand", file], {
      ...(version === undefined ? {} : { node: tool(`node-${version}`, "bin/node") }),
    });

  it("call over mem and tcp in jest, as ES modules", () => {
    const { status, stderr } = jest("jest/hello.test.mjs", ["--experimental-vm-modules"]);
    expect(status, stderr).toBe(0);
    expect(stderr).toMatch(/Tests: +2 passed/);
  });

  it.each(["20", "22", "24", "26"])(
    "call over mem and tcp in jest, as CommonJS with import(), on Node %s",
    (version) => {
      const { status, stderr } = jest("jest/import.test.cjs", ["--experimental-vm-modules"], version);
      expect(status, stderr).toBe(0);
      expect(stderr).toMatch(/Tests: +2 passed/);
    },
  );

  it.each(["24", "26"])("call over mem and tcp in jest, as CommonJS with require, on Node %s", (version) => {
    const { status, stderr } = jest("jest/hello.test.cjs", ["--experimental-vm-modules"], version);
    expect(status, stderr).toBe(0);
    expect(stderr).toMatch(/Tests: +2 passed/);
  });

  it.each(["20", "22"])("cannot require ES modules in jest on Node %s, and are told so", (version) => {
    const { status, stderr } = jest("jest/hello.test.cjs", ["--experimental-vm-modules"], version);
    expect(status).toBe(1);
    expect(stderr).toMatch(/Must use import to load ES Module: .*cinnabar/);
  });
});
