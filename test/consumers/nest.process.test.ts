import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { Project, root, tool } from "./support/project.ts";

const project = new Project("nest");
afterAll(() => project.remove());

// The tests of the package, which run with Nest 12 in the checkout.
const folder = join(root, "packages/nest/test");
for (const file of readdirSync(folder))
  project.write(
    file,
    readFileSync(join(folder, file), "utf8").replaceAll("../src/index.ts", "cinnabar-nest"),
  );
const compilerOptions = {
  ...{ target: "es2022", module: "nodenext", lib: ["es2023", "esnext.disposable"], types: ["node"] },
  ...{ strict: true, exactOptionalPropertyTypes: true, noEmit: true, allowImportingTsExtensions: true },
  ...{ experimentalDecorators: true, emitDecoratorMetadata: true },
};
project.write("tsconfig.json", JSON.stringify({ compilerOptions }));
// A test of messages uses a hook that only Nest 12 has.
const exclude = ["messages.test.ts"];
project.write("types.json", JSON.stringify({ compilerOptions, exclude }));

it("passes its own tests with Nest 11", () => {
  const version = JSON.parse(readFileSync(tool("@nestjs/core", "package.json"), "utf8")).version;
  expect(version).toMatch(/^11\./);
  project.write("vitest.config.mjs", "export default { test: { maxWorkers: 1 } };");
  const { status, stdout, stderr } = project.node([tool("vitest", "vitest.mjs"), "run", "--reporter=json"]);
  expect(status, stdout + stderr).toBe(0);
  const { numPassedTests, numPendingTests } = JSON.parse(stdout.slice(stdout.indexOf('{"numTotal')));
  expect(numPassedTests).toBeGreaterThan(30);
  // The hook of Nest 12.
  expect(numPendingTests).toBe(1);
});

it("has types for Nest 11", () => {
  const { status, stdout } = project.node([tool("typescript-7", "bin/tsc"), "-p", "types.json"]);
  expect({ status, stdout }).toEqual({ status: 0, stdout: "" });
});
