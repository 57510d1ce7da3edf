import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
const { version, bin } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
  version: string;
  bin: { cinnabar: string };
};

it("`npm run setup` makes the command that package.json names, and `npx cinnabar` finds it in the checkout", () => {
  expect(existsSync(join(root, bin.cinnabar)), "run npm run setup").toBe(true);
  const said = execFileSync("npx", ["--no-install", "cinnabar", "--version"], {
    cwd: root,
    encoding: "utf8",
  });
  expect(said).toBe(`${version}\n`);
});
