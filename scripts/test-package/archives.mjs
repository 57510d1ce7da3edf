import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { root, SetupError } from "../setup/command.mjs";

/** Where `npm run package` puts the package. */
export const packages = join(root, "dist-packages");

/**
 * The package of this version.
 *
 * @param {string} [folder] that it was put into
 */
export function tarball(folder = packages) {
  const { name, version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const file = join(folder, `${name}-${version}.tgz`);
  if (!existsSync(file))
    throw new SetupError(`There is no package to test: ${file}`, "Make it: npm run package");
  return file;
}

/** Programs that use the installed package. */
export const programs = ["first-answers.mjs", "server.mjs", "client.mjs", "pair.mjs", "guide.mjs"].map(
  (name) => join(root, "test", "package", "programs", name),
);
