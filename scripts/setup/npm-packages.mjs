import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { root, SetupError, step } from "./command.mjs";

/**
 * Installs the npm packages unless what is installed is what package-lock.json says. npm writes
 * `node_modules/.package-lock.json` at the very end of an installation, so comparing the two also catches one that was
 * interrupted, and accepts one made by hand.
 */
export async function installNpmPackages() {
  if (npmPackagesAreInstalled()) return;
  // npm tries for minutes before it gives up on a registry; with its requests in the log the wait at least says why.
  const args = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=http"];
  await step("npm packages", "npm", args, {
    // What is wrong comes first, then a page about the command's options.
    excerpt: (output) =>
      output
        .split("\n")
        .filter((line) => line.startsWith("npm error"))
        .slice(0, 12)
        .join("\n"),
    advice: "Check that the npm registry can be reached (`npm ping`), then run the command again.",
  });
  if (!npmPackagesAreInstalled()) {
    throw new SetupError(
      "npm packages: `npm ci` ended well, yet node_modules does not match package-lock.json",
      "Delete node_modules and run the command again.",
    );
  }
}

/** Whether all npm packages are installed. */
export function npmPackagesAreInstalled() {
  const wanted = readPackages("package-lock.json");
  const installed = readPackages("node_modules/.package-lock.json");
  if (wanted === undefined || installed === undefined) return false;
  return Object.entries(wanted).every(([path, entry]) => {
    if (!path.startsWith("node_modules/")) return true;
    if (entry.link) return existsSync(join(root, path));
    // Packages for another platform are left out by npm without being a lack.
    if (installed[path] === undefined) return entry.optional === true || entry.peer === true;
    return installed[path].version === entry.version && existsSync(join(root, path));
  });
}

/**
 * @param {string} path
 * @returns {Record<string, { version?: string, optional?: boolean, peer?: boolean, link?: boolean }> | undefined}
 */
function readPackages(path) {
  try {
    return JSON.parse(readFileSync(join(root, path), "utf8")).packages;
  } catch {
    return undefined;
  }
}
