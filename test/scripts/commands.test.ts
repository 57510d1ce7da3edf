import { execFileSync } from "node:child_process";
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

it("CONTRIBUTING lists each command of package.json once, twenty at most", () => {
  const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
  const [, table = ""] = read("CONTRIBUTING.md").split("\n## Commands\n");
  const rows = (table.split("\n## ")[0] ?? "").split("\n").filter((line) => line.startsWith("| `"));
  const listed = rows.flatMap((row) => {
    const [, cell = ""] = row.split(" | ")[0]?.split("| ") ?? [];
    return [...cell.matchAll(/`(?:npm run )?(npm test|[\w:]+)/g)].map(([, name = ""]) =>
      name.replace("npm ", ""),
    );
  });
  expect(listed.sort()).toEqual(Object.keys(scripts).sort());
  expect(listed.length).toBeLessThanOrEqual(20);
});

it("CONTRIBUTING lists ten environment variables at most, and each is read", () => {
  const [, part = ""] = read("CONTRIBUTING.md").split("\n## Environment variables\n");
  const rows = (part.split("\n## ")[0] ?? "").split("\n").filter((line) => line.startsWith("| `"));
  const names = rows.map((row) => /CINNABAR_\w+/.exec(row)?.[0] ?? row);
  expect(names.length).toBeGreaterThan(5);
  expect(names.length).toBeLessThanOrEqual(10);
  const sources = execFileSync(
    "git",
    ["grep", "-hoE", "CINNABAR_[A-Z_]+", "--", ":!*.md", ":!test/scripts"],
    {
      cwd: root,
      encoding: "utf8",
    },
  ).split("\n");
  for (const name of names) expect(sources).toContain(name);
});
