import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { root } from "./pages.test-support.ts";

/**
 * Checks the types of all files in a folder of `test/docs/` under the package's own settings. `globals` declares the
 * names that every file may use. Returns the compiler's messages.
 */
export function compile(folder: string, globals: string): string {
  writeFileSync(`${folder}/globals.d.ts`, globals);
  writeFileSync(
    `${folder}/tsconfig.json`,
    JSON.stringify({
      extends: "../../../tsconfig.json",
      compilerOptions: { verbatimModuleSyntax: false },
      include: ["**/*.ts"],
    }),
  );
  const compiler = `${root}node_modules/typescript-7/bin/tsc`;
  return spawnSync(process.execPath, [compiler, "-p", folder], { encoding: "utf8" }).stdout;
}
