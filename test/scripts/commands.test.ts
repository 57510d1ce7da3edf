import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { root } from "../../scripts/setup/command.mjs";

const read = (file: string) => readFileSync(join(root, file), "utf8");

it("the README sets the checkout up by two commands that do everything, and .ci/run calls the one that tests", () => {
  const [, part = ""] = read("README.md").split("\n## Set up the checkout\n");
  const [, block = ""] = /^```sh\n([\s\S]*?)^```/m.exec(part) ?? [];
  const commands = block
    .trim()
    .split("\n")
    .map((line) => line.split("#")[0]?.trim());
  expect(commands).toEqual(["npm run demo", "npm test"]);
  expect(read(".ci/run")).toContain(`\nrun ${commands[1]} ||`);
  const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
  expect(scripts).toMatchObject({ demo: expect.any(String), test: expect.any(String) });
});
