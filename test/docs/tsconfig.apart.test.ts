import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { blocksOf, root } from "./pages.test-support.ts";

// Inside the checkout, whose package the programs import by its name.
mkdirSync(join(root, "build"), { recursive: true });
const folder = mkdtempSync(join(root, "build/tsconfig-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** The settings that the guide shows. */
function settings(): { compilerOptions: Record<string, unknown> } {
  const shown = blocksOf("docs/guide/install.md").find(({ text }) => text.includes("compilerOptions"));
  return JSON.parse(shown?.text ?? "");
}

it("of README and guide are the same, and make programs that the oldest supported Node runs", () => {
  const { compilerOptions } = settings();
  const readme = readFileSync(join(root, "README.md"), "utf8");
  for (const name of ["module", "target", "lib", "rewriteRelativeImportExtensions"])
    expect(readme.replaceAll(/\s+/g, " ")).toMatch(
      new RegExp(
        `\`${name}\` to \`${JSON.stringify(compilerOptions[name])
          .replaceAll(/^"|"$/g, "")
          .replaceAll(/[[\]]/g, "\\$&")
          .replace(",", ",\\s?")}\``,
      ),
    );
  const program =
    blocksOf("docs/guide/bulk.md").find(({ text }) => text.startsWith("// squares.ts"))?.text ?? "";
  expect(program).toContain("await using");
  writeFileSync(join(folder, "squares.ts"), program.replaceAll("shm://", "mem://"));
  writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
  writeFileSync(
    join(folder, "tsconfig.json"),
    JSON.stringify({ compilerOptions: { ...compilerOptions, types: ["node"], skipLibCheck: true } }),
  );
  execFileSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-p", folder]);
  const compiled = readFileSync(join(folder, "squares.js"), "utf8");
  expect(compiled).not.toMatch(/await using/);
  // A folder with a package.json of its own does not see the checkout's name.
  rmSync(join(folder, "package.json"));
  const printed = execFileSync(process.execPath, [join(folder, "squares.js")], { encoding: "utf8" });
  expect(printed).toBe("1000000 squares, the last one is 1000000000000\n");
});
