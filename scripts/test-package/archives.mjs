import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { otherPackages } from "../package/other-packages.mjs";
import { root, SetupError } from "../setup/command.mjs";

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
