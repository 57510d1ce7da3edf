import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { otherPackages } from "../package/other-packages.mjs";
import { root, SetupError, step } from "../setup/command.mjs";

/** Where `npm run package` puts the packages. */
export const packages = join(root, "dist-packages");

/**
 * The packages of this version.
 *
 * @param {string} [folder] that they were put into
 * @returns {import("../package/make.mjs").Archives}
 */
export function archives(folder = packages) {
  const { name, version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const names = [name, ...otherPackages().map(({ manifest }) => manifest.name)];
  const [main = "", ...others] = names.map((each) => join(folder, `${each}-${version}.tgz`));
  for (const file of [main, ...others])
    if (!existsSync(file))
      throw new SetupError(`There is no package to test: ${file}`, "Make it: npm run package");
  return { main, others };
}

/** Programs that use the installed packages; that of another one than `cinnabar` has its name. */
export const programs = [
  ...["first-answers", "server", "client", "pair", "guide"],
  ...otherPackages().map(({ manifest }) => manifest.name),
].map((name) => join(root, "test", "package", "programs", `${name}.mjs`));

/**
 * Installs `cinnabar` in a folder, puts the programs beside it, and removes all of it after the use.
 *
 * @template T
 * @param {string} main the archive
 * @param {(folder: string) => Promise<T>} use
 * @param {readonly string[]} [options] of `npm install`
 * @returns {Promise<T>}
 */
export async function withInstalled(main, use, options = []) {
  const folder = mkdtempSync(join(tmpdir(), "cinnabar-installed-"));
  try {
    writeFileSync(join(folder, "package.json"), "{}");
    const where = ["--prefix", folder, "--no-audit", "--no-fund", "--ignore-scripts"];
    await step("install the package", "npm", ["install", ...where, ...options, main, "zod"]);
    for (const file of programs) cpSync(file, join(folder, basename(file)));
    return await use(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
